"""`openmaia prefetch`: downloads the weights that a config names before a run needs them."""

import socket
from collections.abc import Sequence

from openmaia.cli.commands.common import ConfigSources, fail

_SECONDS = 6 * 3600.0
"""Time limit in seconds for the downloads of all nodes."""


def prefetch(config: ConfigSources) -> None:
    """Downloads the weights that a config names: on this machine, or on each node of the cluster at ray.address.

    What is in the cache of the node already (HF_HOME, TORCH_HOME) is not downloaded again.

    Example: openmaia prefetch configs/resnet152.yaml ray.address=auto
    """
    from openmaia import distributed
    from openmaia.checks.download import fetch
    from openmaia.checks.weights import weight_sources
    from openmaia.config.loading import load
    from openmaia.core.components import target_class

    settings = load(config)
    wanted = list(weight_sources(settings)), target_class(settings.target).library_weights(settings.target)
    if not any(wanted):
        print("this config names no weights that could be downloaded")
        return
    if settings.ray.address == "local":
        failures = _print(socket.gethostname(), fetch(*wanted))
    else:
        distributed.prepare(settings.ray.address)
        from openmaia.distributed.cluster.connection import cluster
        from openmaia.distributed.cluster.nodes import alive, label, run_on

        with cluster(settings):
            answers = run_on(alive(), fetch, lambda node: wanted, _SECONDS)
            failures = [
                failure
                for node, lines, problem in answers
                for failure in _print(label(node), [(False, problem)] if problem else lines)
            ]
    if failures:
        fail(f"{len(failures)} downloads failed; the lines above say why", 1)


def _print(node: str, lines: Sequence[tuple[bool, str]]) -> list[str]:
    """Prints the results of a node's downloads.

    Args:
        node: The name of the node.
        lines: (is_there, line) for each download, as `fetch` returns them.

    Returns:
        The lines of the downloads that failed.
    """
    for is_there, line in lines:
        print(f"{node}: {'' if is_there else 'failed: '}{line}")
    return [line for is_there, line in lines if not is_there]
