"""How many requests a server gets at once: a level that finds itself by what the server refuses with status 429.

It rises by one with as many answers as the level, and is halved by a refusal: additive increase and multiplicative decrease
(Chiu and Jain 1989). All models of a process that are on one server share it.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from openmaia.models.backbones.failures import Failure
from openmaia.models.backbones.outage import LONGEST_WAIT

SentT = TypeVar("SentT")

CALL_SECONDS = 60.0
"""Seconds for which a request waits within its call. If the server wants more, investigations wait as in an outage."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
"""Seconds between two requests if the server does not say when it takes the next one; doubled with each refusal."""

log = logging.getLogger(__name__)


class Pace:
    """The level of one server. Thread-safe. `url` is for messages."""

    def __init__(self, url: str, call_seconds: float = CALL_SECONDS):
        self._url, self._call_seconds = url, call_seconds
        self._level = math.inf
        self._under_way = 0
        self._not_before = 0.0
        self._halved = 0.0
        self._refusals = 0
        """Since the latest answer."""
        self._changed = threading.Condition()
        self._own = threading.local()

    @property
    def level(self) -> float:
        """The largest number of requests at once; infinite as long as the server has refused none."""
        return self._level

    @property
    def waited(self) -> float:
        """Seconds for which this thread has waited so far because the server limits the rate."""
        return getattr(self._own, "waited", 0.0)

    def call(self, send: Callable[[], SentT | Failure], *, repeats: bool = True) -> SentT | Failure:
        """Sends a request as soon as the level permits and, if it `repeats`, again while the server refuses it for its rate.
        Returns the refusal if it lasts longer than a call may wait.
        """
        until = time.monotonic() + self._call_seconds
        while True:
            if not self._enter(until):
                return Failure(status=429, body="it limits the rate, and other requests are before this one")
            sent = time.monotonic()
            answer: SentT | Failure | None = None
            try:
                answer = send()
            finally:
                self._leave(is_answered=answer is not None and not isinstance(answer, Failure))
            if not isinstance(answer, Failure) or not answer.is_limited:
                return answer
            self._refuse(answer, sent)
            if not repeats or time.monotonic() + (answer.wait_seconds or 0.0) > until:
                return answer

    def _enter(self, until: float) -> bool:
        began = time.monotonic()
        with self._changed:
            while (now := time.monotonic()) < self._not_before or self._under_way >= max(int(min(self._level, 1e9)), 1):
                if now >= until:
                    self._own.waited = self.waited + now - began
                    return False
                pause = self._not_before - now if now < self._not_before else until - now
                self._changed.wait(min(pause, until - now))
            self._under_way += 1
            self._own.waited = self.waited + now - began
            return True

    def _leave(self, *, is_answered: bool) -> None:
        with self._changed:
            self._under_way -= 1
            if is_answered:
                self._refusals = 0
                self._level += 1 / self._level
            self._changed.notify_all()

    def _refuse(self, failure: Failure, sent: float) -> None:
        with self._changed:
            now = time.monotonic()
            # One refusal counts for all requests that were sent before it.
            if sent >= self._halved:
                # The refused request itself has left.
                self._level = max(min(self._level, self._under_way + 1) / 2, 1.0)
                self._halved = now
                if not self._refusals:
                    log.info("%s limits the rate; %d requests at once from now on", self._url, self._level)
            # A float holds no 2**1024, and a server may refuse for hours.
            pause = min(_FIRST_PAUSE * 2 ** min(self._refusals, 10), _LONGEST_PAUSE)
            self._refusals += 1
            wait = pause if failure.wait_seconds is None else min(failure.wait_seconds, LONGEST_WAIT)
            self._not_before = max(self._not_before, now + wait)


_paces: dict[str, Pace] = {}
_lock = threading.Lock()


def pace_of(url: str, shown: str) -> Pace:
    """Returns the pace of a server in this process. `shown` is its address in messages, without secrets."""
    with _lock:
        return _paces.setdefault(url, Pace(shown))
