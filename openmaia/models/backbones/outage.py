"""Tracks the outage of a model server. After one request has detected it, others fail at once without being sent."""

import logging
import threading
import time
from dataclasses import dataclass, field

from openmaia.core.errors import ServiceUnavailable

PROBE_SECONDS = 10.0
"""Time in seconds between two requests to an unavailable server."""

STATUSES = (502, 503, 504, 529)
"""HTTP statuses of a server, or of its proxy, that mean that it is unavailable or overloaded."""

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
    _reason: str = ""
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

    def begin(self, reason: str) -> None:
        """Marks the server as unavailable. Logs a warning at the first call of an outage.

        Args:
            reason: The error message of the failed request. Until `end` is called, `check` raises ServiceUnavailable
                with this message.
        """
        with self._lock:
            if not self._reason:
                self._since = time.monotonic()
                log.warning("%s; investigations wait for it, at most backbone.outage_minutes", reason)
            self._reason = reason

    def end(self) -> None:
        """Marks the server as available, because it has answered."""
        with self._lock:
            if self._reason:
                log.warning("%s answers again after %.0f s", self.url, time.monotonic() - self._since)
            self._reason = ""
