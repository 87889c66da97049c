"""How many requests a server answers at once, if that is what it limits.

Such a server refuses a request whenever its places are taken, and at no other time. One that limits the rate refuses a request
because of when the others were sent, and takes it later beside just as many. So a server is taken to have places if, of late,
every refused request met more under way than any that was taken, if this lasted longer than an answer takes, and some of the
refused ones were not sent soon after another.
"""

from collections import deque
from dataclasses import dataclass, field

_OUTCOMES = 24
"""Requests that are remembered."""
_REFUSED, _LATE = 3, 2
"""Of them at least so many were refused, and so many of those were late, before a server is taken to have places."""
_SHARE_OF_TURN = 0.9
"""A request is late after this share of the time that passes between two answers if all places are in use."""
_TRIED = 4
"""After so many answers a place, one more is tried: the server may have got more."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. `time` and `gap` are in seconds."""

    time: float
    beside: int
    """Other requests that were under way."""
    gap: float
    """Since the newest of these was sent; infinite without one."""


@dataclass(slots=True)
class ServerPlaces:
    """The places of one server. Not thread-safe."""

    count: int = 0
    """0: none are known, and the server may limit something else."""
    _outcomes: deque[tuple[Sent, bool]] = field(default_factory=lambda: deque[tuple[Sent, bool]](maxlen=_OUTCOMES))
    """Requests, and whether each was taken."""
    _answers: int = 0
    """Since one more place was tried."""
    _grows: bool = False
    """Whether the last place that was tried was there."""

    def seconds_to_try(self, latency: float) -> float | None:
        """Returns the seconds after the newest request at which one more than `count` may be sent; None: not yet."""
        if not (self._grows or self._answers >= _TRIED * self.count):
            return None
        return _SHARE_OF_TURN * latency / self.count

    def sent(self, request: Sent) -> None:
        """Takes note that a request is sent."""
        if self.count and request.beside >= self.count:
            self._answers, self._grows = 0, False

    def took(self, request: Sent) -> None:
        """Takes note that a request was answered."""
        self._outcomes.append((request, True))
        self._answers += 1
        if self.count and request.beside >= self.count:
            self.count, self._grows = request.beside + 1, True

    def explain(self, refused: Sent) -> bool:
        """Takes note of a refusal. Returns whether it is one of places that were known; they are forgotten if it is not."""
        self._outcomes.append((refused, False))
        if not self.count:
            return False
        if refused.beside >= max(self.count - 1, 1):
            self.count = min(self.count, refused.beside)  # one fewer if the last was free by chance when it was tried
            return True
        self.count = 0
        self._outcomes.clear()
        return False

    def find(self, latency: float) -> bool:
        """Looks whether the server has places. Returns whether that is news. latency: seconds of an answer; 0: not known."""
        refused = [request for request, is_taken in self._outcomes if not is_taken]
        if self.count or not latency or len(refused) < _REFUSED:
            return False
        count = min(request.beside for request in refused)
        most_taken = max((request.beside for request, is_taken in self._outcomes if is_taken), default=count)
        late = sum(request.gap * count > _SHARE_OF_TURN * latency for request in refused)
        lasted = refused[-1].time - refused[0].time
        if most_taken >= count or late < _LATE or lasted < latency:
            return False
        self.count, self._answers, self._grows = count, 0, False
        return True
