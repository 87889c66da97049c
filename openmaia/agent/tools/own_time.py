"""Measures what tool calls cost the process that answers them: decoding, encoding, comparing."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, cast

from openmaia.core.services import Services


class OwnTime:
    """The CPU time of one thread in seconds, without that of services and of the user's own tools."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.user_seconds = 0.0
        """By the clock."""
        self._outside = 0.0

    @contextmanager
    def measured(self) -> Generator[None]:
        """Measures a block."""
        started, outside = time.thread_time(), self._outside
        try:
            yield
        finally:
            self.seconds += time.thread_time() - started - (self._outside - outside)

    @contextmanager
    def excluded(self) -> Generator[None]:
        """Excludes a block within a measured one."""
        started = time.thread_time()
        try:
            yield
        finally:
            self._outside += time.thread_time() - started

    @contextmanager
    def user_tool(self) -> Generator[None]:
        """Excludes a block, and adds its time to `user_seconds`."""
        started = time.monotonic()
        try:
            with self.excluded():
                yield
        finally:
            self.user_seconds += time.monotonic() - started

    def without(self, services: Services) -> Services:
        """Returns the same services, whose calls are excluded."""
        called = {each.name: getattr(services, each.name) for each in fields(services) if each.name != "ledger"}
        apart = {name: _Apart(service, self) for name, service in called.items() if service is not None}
        return replace(services, **cast(Any, apart))


class _Apart:
    def __init__(self, service: Any, time: OwnTime):
        self._service, self._time = service, time

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._service, method)

        def excluded(*requests: Any) -> Any:
            with self._time.excluded():
                return call(*requests)

        return excluded
