"""The gates of servers that all processes of a cluster share: an actor has the throttle of each server."""

import asyncio
import hashlib
import math
import time
from typing import Any

import ray
from ray.exceptions import RayError

from openmaia.models.pace import OwnGate, share_gates
from openmaia.models.throttle import Throttle

_NAMESPACE, _NAME = "openmaia-gates", "gates"
_AT_ONCE = 10_000
"""Requests that may wait in the actor."""


class _SharedThrottle:
    """Lets requests pass in the order in which they came."""

    def __init__(self) -> None:
        self.throttle = Throttle()
        self._door, self._changed = asyncio.Lock(), asyncio.Event()

    async def enter(self) -> int:
        async with self._door:
            while isinstance(passed := self.throttle.enter(time.monotonic()), float):
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), None if math.isinf(passed) else passed)
                except TimeoutError:
                    pass
            return passed

    def change(self) -> None:
        self._changed.set()


class Gates:
    """The gates of all servers, by the hash of their address. `SharedGate` makes it a Ray actor."""

    def __init__(self) -> None:
        self._servers: dict[str, _SharedThrottle] = {}

    def __repr__(self) -> str:
        return _NAME

    async def enter(self, server: str, seconds: float) -> int | None:
        """See `Gate.enter`."""
        try:
            return await asyncio.wait_for(self._of(server).enter(), max(seconds, 0.0))
        except TimeoutError:
            return None

    async def answered(self, server: str, number: int) -> None:
        """See `Gate.answered`."""
        self._of(server).throttle.answered(number, time.monotonic())
        self._of(server).change()

    async def failed(self, server: str, number: int) -> None:
        """See `Gate.failed`."""
        self._of(server).throttle.failed(number)
        self._of(server).change()

    async def refused(self, server: str, number: int, wait: float | None) -> bool:
        """See `Gate.refused`."""
        is_news = self._of(server).throttle.refused(number, time.monotonic(), wait)
        self._of(server).change()
        return is_news

    def _of(self, server: str) -> _SharedThrottle:
        return self._servers.setdefault(server, _SharedThrottle())


class SharedGate:
    """The gate of one server. The process that first needs it starts the actor; if that dies, another one does."""

    def __init__(self, url: str):
        self._server = hashlib.sha256(url.encode()).hexdigest()
        self._actor: Any = None
        self._own = OwnGate()
        """For as long as there is no actor: the cluster may be ending."""

    def enter(self, seconds: float) -> int | None:
        """Returns numbers of its own, which are negative, without an actor."""
        until = time.monotonic() + seconds
        for _ in range(2):
            try:
                return ray.get(self._gates().enter.remote(self._server, until - time.monotonic()))
            except RayError:
                self._actor = None
        number = self._own.enter(until - time.monotonic())
        return number if number is None else -number

    def answered(self, number: int) -> None:
        if number < 0:
            self._own.answered(-number)
        elif self._actor is not None:
            self._actor.answered.remote(self._server, number)

    def failed(self, number: int) -> None:
        if number < 0:
            self._own.failed(-number)
        elif self._actor is not None:
            self._actor.failed.remote(self._server, number)

    def refused(self, number: int, wait: float | None) -> bool:
        if number < 0:
            return self._own.refused(-number, wait)
        try:
            return ray.get(self._gates().refused.remote(self._server, number, wait))
        except RayError:
            self._actor = None
            return False

    def _gates(self) -> Any:
        if self._actor is None:
            options = {"name": _NAME, "namespace": _NAMESPACE, "get_if_exists": True, "num_cpus": 0}
            remote: Any = ray.remote(Gates)
            self._actor = remote.options(**options, max_concurrency=_AT_ONCE).remote()
        return self._actor


def use_shared_gates() -> None:
    """From now on, the models of this process share the gates of their servers with those of all others."""
    share_gates(SharedGate)
