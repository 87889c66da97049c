"""Measures what the tool calls of the agent's code cost the process that answers them: decoding, encoding, comparing.

The time that services take is measured elsewhere, and waiting for them costs nothing.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from openmaia.core.services import Services


class OwnTime:
    """Adds up the CPU time of one thread, without that of services and of the user's own tools."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """The CPU time in seconds."""
        self.user_seconds = 0.0
        """The time that the user's own tools took, by the clock, in seconds."""
        self._outside = 0.0

    @contextmanager
    def measured(self) -> Generator[None]:
        """Context manager whose block is measured."""
        started, outside = time.thread_time(), self._outside
        try:
            yield
        finally:
            self.seconds += time.thread_time() - started - (self._outside - outside)

    @contextmanager
    def excluded(self) -> Generator[None]:
        """Context manager for a block within a measured one that does not count."""
        started = time.thread_time()
        try:
            yield
        finally:
            self._outside += time.thread_time() - started

    @contextmanager
    def user_tool(self) -> Generator[None]:
        """Context manager for the call of a tool of the user."""
        started = time.monotonic()
        try:
            with self.excluded():
                yield
        finally:
            self.user_seconds += time.monotonic() - started

    def without(self, services: Services) -> Services:
        """Returns the same services, whose calls do not count."""
        names = ("target", "exemplars", "generator", "editor", "backbone")
        return replace(services, **{name: cast(Any, _Apart(getattr(services, name), self)) for name in names})


class _Apart:
    def __init__(self, service: Any, time: OwnTime):
        self._service, self._time = service, time

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._service, method)

        def excluded(*requests: Any) -> Any:
            with self._time.excluded():
                return call(*requests)

        return excluded
