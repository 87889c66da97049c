"""Tracks the outage of a model server. After one request has detected it, others fail at once without being sent."""

import logging
import threading
import time
from dataclasses import dataclass, field

from openmaia.core.errors import ServiceUnavailable

PROBE_SECONDS = 10.0
"""Time in seconds between two requests to an unavailable server."""

LONGEST_WAIT = 600.0
"""Longest time in seconds between two requests, whatever the server says. Some name dates of other years."""

log = logging.getLogger(__name__)


@dataclass
class Outage:
    """The availability of a server, as observed by requests. It is thread-safe.

    Args:
        url: The address of the server, for messages.
        probe_seconds: Time in seconds between two requests to an unavailable server.
    """

    url: str
    probe_seconds: float = PROBE_SECONDS
    answered: float = 0.0
    """When the latest request that was answered had been sent, by the monotonic clock. 0 if none was answered."""
    _reason: str = ""
    _is_said: bool = False
    _since: float = 0.0
    _next_probe: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Checks whether a request may be sent now. It is called before each request.

        While the server is marked as unavailable, only one request per `probe_seconds` is allowed.

        Raises:
            ServiceUnavailable: If the request must not be sent.
        """
        with self._lock:
            if self._reason and time.monotonic() < self._next_probe:
                raise ServiceUnavailable(self._reason)
            self._next_probe = time.monotonic() + self.probe_seconds

    @property
    def is_known(self) -> bool:
        """Whether the server is marked as unavailable."""
        return bool(self._reason)

    def begin(self, reason: str, wait: float | None = None, *, say: bool = True) -> None:
        """Marks the server as unavailable. Logs a warning once in an outage.

        Args:
            reason: The error message of the failed request. Until `end` is called, `check` raises ServiceUnavailable
                with this message.
            wait: Seconds for which the server wants no request. None if it says nothing about that.
            say: Whether a warning is logged. It is not while the failed request is about to be repeated.
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
        """Marks the server as available, because it has responded.

        Args:
            sent: When the request was sent, by the monotonic clock, if it was answered. None if it was refused.
        """
        with self._lock:
            if self._is_said:
                log.warning("%s answers again after %.0f s", self.url, time.monotonic() - self._since)
            self._reason, self._is_said = "", False
            self.answered = max(self.answered, sent or 0.0)
