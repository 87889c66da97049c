"""When requests are sent to a server, and when again if it refuses them for their rate.

All that ask one server pass one gate: the models of this process or, where `share_gates` was called, of all processes.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from openmaia.models.backbones.failures import Failure
from openmaia.models.throttle import Throttle

SentT = TypeVar("SentT")

CALL_SECONDS = 60.0
"""Seconds for which a request waits within its call. If the server wants more, investigations wait as in an outage."""

log = logging.getLogger(__name__)


class Gate(Protocol):
    """Lets requests to one server pass. Thread-safe."""

    def enter(self, seconds: float) -> int | None:
        """Waits until a request may be sent. Returns its number, or None if that takes more than so many seconds."""
        ...

    def answered(self, number: int) -> None:
        """Takes note of an answer."""
        ...

    def failed(self, number: int) -> None:
        """Takes note of a request that failed for another reason than its rate."""
        ...

    def refused(self, number: int, wait: float | None) -> bool:
        """See `Throttle.refused`."""
        ...


class OwnGate:
    """The gate of one server in this process."""

    def __init__(self) -> None:
        self._throttle = Throttle()
        self._door = threading.Lock()
        """One request watches the throttle, and the others wait behind it."""
        self._changed = threading.Condition()

    @property
    def level(self) -> float:
        """See `Throttle.level`."""
        return self._throttle.level

    def enter(self, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        if not self._door.acquire(timeout=max(seconds, 0.0)):
            return None
        try:
            with self._changed:
                while isinstance(passed := self._throttle.enter(now := time.monotonic()), float):
                    if now >= until:
                        return None
                    self._changed.wait(min(passed, until - now))
                return passed
        finally:
            self._door.release()

    def answered(self, number: int) -> None:
        with self._changed:
            self._throttle.answered(number, time.monotonic())
            self._changed.notify_all()

    def failed(self, number: int) -> None:
        with self._changed:
            self._throttle.failed(number)
            self._changed.notify_all()

    def refused(self, number: int, wait: float | None) -> bool:
        with self._changed:
            is_news = self._throttle.refused(number, time.monotonic(), wait)
            self._changed.notify_all()
            return is_news


class Pace:
    """The requests of this process to one server. Thread-safe. `url` is for messages."""

    def __init__(self, url: str, gate: Gate | None = None, call_seconds: float = CALL_SECONDS):
        self._url, self._gate, self._call_seconds = url, gate or OwnGate(), call_seconds
        self._is_said = False
        self._own = threading.local()

    @property
    def waited(self) -> float:
        """Seconds for which this thread has waited so far because the server limits the rate."""
        return getattr(self._own, "waited", 0.0)

    def call(self, send: Callable[[], SentT | Failure], *, repeats: bool = True) -> SentT | Failure:
        """Sends a request as soon as the gate permits and, if it `repeats`, again while the server refuses it for its rate.
        Returns the refusal if it lasts longer than a call may wait.
        """
        until = time.monotonic() + self._call_seconds
        while True:
            number = self._enter(until)
            if number is None:
                return Failure(status=429, body="it limits the rate, and other requests are before this one")
            try:
                answer = send()
            except BaseException:
                self._gate.failed(number)
                raise
            if not isinstance(answer, Failure):
                self._gate.answered(number)
                return answer
            if not answer.is_limited:
                self._gate.failed(number)
                return answer
            self._refuse(number, answer.wait_seconds)
            if not repeats or time.monotonic() + (answer.wait_seconds or 0.0) > until:
                return answer

    def _enter(self, until: float) -> int | None:
        began = time.monotonic()
        try:
            return self._gate.enter(until - began)
        finally:
            self._own.waited = self.waited + time.monotonic() - began

    def _refuse(self, number: int, wait: float | None) -> None:
        if wait is not None and not math.isfinite(wait):
            wait = None
        if self._gate.refused(number, wait) and not self._is_said:
            self._is_said = True
            log.info("%s limits the rate; requests are spaced from now on", self._url)


_paces: dict[str, Pace] = {}
_lock = threading.Lock()


def _own_gate(url: str) -> Gate:
    return OwnGate()


_make_gate: Callable[[str], Gate] = _own_gate


def share_gates(make: Callable[[str], Gate]) -> None:
    """From now on, this process gets the gate of a server, by its address, from `make`."""
    global _make_gate
    _make_gate = make


def pace_of(url: str, shown: str) -> Pace:
    """Returns the pace of a server in this process. `shown` is its address in messages, without secrets."""
    with _lock:
        if url not in _paces:
            _paces[url] = Pace(shown, _make_gate(url))
        return _paces[url]
