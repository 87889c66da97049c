"""The outage of a model server. After one request has met it, others fail at once without being sent."""

import logging
import threading
import time
from dataclasses import dataclass, field

from openmaia.core.errors import ServiceUnavailable

PROBE_SECONDS = 10.0  # between two requests to an unavailable server

# Seconds, whatever the server says. Some name dates of other years.
LONGEST_WAIT = 600.0

log = logging.getLogger(__name__)


@dataclass
class Outage:
    """The availability of a server, as requests met it. Thread-safe."""

    url: str
    probe_seconds: float = PROBE_SECONDS
    answered: float = 0.0
    """When the latest answered request was sent, by the monotonic clock. 0 if none was answered."""
    _reason: str = ""
    _is_said: bool = False
    _since: float = 0.0
    _next_probe: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Call before each request. Raises ServiceUnavailable in an outage, but once per `probe_seconds`."""
        with self._lock:
            if self._reason and time.monotonic() < self._next_probe:
                raise ServiceUnavailable(self._reason)
            self._next_probe = time.monotonic() + self.probe_seconds

    @property
    def is_known(self) -> bool:
        return bool(self._reason)

    def begin(self, reason: str, wait: float | None = None, *, say: bool = True) -> None:
        """Marks the server as unavailable: `check` raises with `reason` until `end` is called.

        Args:
            wait: Seconds for which the server wants no request. None if it does not say.
            say: Whether a warning is logged, once in an outage. Not while the request is about to be repeated.
        """
        with self._lock:
            now = time.monotonic()
            if not self._reason:
                self._since = now
            if say and not self._is_said:
                self._is_said = True
                log.warning("%s; investigations wait for it, at most backbone.outage_minutes", reason)
            self._reason = reason
            if wait is not None:
                self._next_probe = max(self._next_probe, now + min(wait, LONGEST_WAIT))

    def end(self, sent: float | None = None) -> None:
        """Marks the server as available. `sent`: when the answered request was sent, by the monotonic clock."""
        with self._lock:
            if self._is_said:
                log.warning("%s answers again after %.0f s", self.url, time.monotonic() - self._since)
            self._reason, self._is_said = "", False
            self.answered = max(self.answered, sent or 0.0)
