"""Checks whether the servers that a config names answer: those of models, and Ray."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from openmaia.config.machine import host_and_port
from openmaia.config.schema import Config
from openmaia.config.sections import find_components
from openmaia.core.checks import Check, missing, ok

_SECONDS = 3.0
"""Seconds within which a server must answer."""


def components(config: Config, *, waits: bool = False) -> list[Check]:
    """Makes the checks of all components, such as whether their servers answer, accept the user's API key and serve the model.

    All servers are asked at once. `waits`: a server that is slow or overloaded, or that does not list its models, is a
    note and not missing.
    """
    found: list[Callable[[], Check]] = []
    for component, settings, site in find_components(config):
        found += component.checks(settings, replace(site, waits=waits))
    with ThreadPoolExecutor(max(len(found), 1)) as threads:
        return list(threads.map(lambda check: check(), found))


def ray_cluster(address: str) -> Iterator[Check]:
    """Yields whether a Ray cluster accepts connections, unless its address is no host with a port, such as "auto"."""
    place = host_and_port(address)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=_SECONDS).close()
    except OSError as error:
        reason = error.strerror or error
        yield missing(f"ray.address={address} does not answer ({reason}); ray start --head, or another address")
    else:
        yield ok(f"ray.address={address} answers; the run compares its nodes with the pools before it loads weights")
