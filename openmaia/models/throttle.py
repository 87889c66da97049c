"""How fast a server may be asked: an estimate of the rate that it allows, a level of requests at once, and its places.

A refusal with status 429 says that the allowance is used up. What the server takes between two refusals is therefore what it
allowed in that time, within one request. Requests are spaced by the largest rate that agrees with this, which is too fast by
one request in as many as were counted, so that the next refusal comes soon and makes the count longer. Without a refusal the
rate grows with the cube of the requests since the last one, slowly at first, as the window of CUBIC does (RFC 9438): the
allowance may have become larger. The level rises by one with as many answers as the level and is halved by a refusal (Chiu
and Jain 1989), but not below what the rate needs at the latency of the answers (Little 1961).

A server that limits how many requests it answers at once (`ServerPlaces`) is asked without spaces, with as many at once.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from openmaia.models.backbones.outage import LONGEST_WAIT
from openmaia.models.places import Sent, ServerPlaces

_FORGOTTEN = 900.0
"""Seconds after which a request counts as ended: its process may have died."""
_COUNTED = 20
"""Requests between the refusals by which the rate is estimated, at least."""
_DOUBLED = 40
"""Requests without a refusal after which the rate is twice the estimate."""
_AGREES, _KEPT, _HALVED, _FAR = 0.75, 0.97, 0.5, 0.25
"""Shares of the rate at a refusal. A count that is above the first, with one request more, agrees with the rate but for what
pauses and late requests lost: the estimate does not fall below the second. Otherwise not below the third; if the count is below
the fourth at several refusals in a row, with a single request taken between two, not below its square, cube and so on."""
_CLOSED_SECONDS = 60.0
"""A server that takes nothing for longer is closed, which says nothing about its rate: most count by the minute."""
_FIRST_SECONDS = 0.5
"""By this time at least the first requests are divided, which were sent at once."""
_FIRST_PAUSE = 0.25
"""Of the time between two requests. It doubles while the server refuses."""
_LONGEST_PAUSE = 5.0
"""Seconds between two requests to a server that is closed and does not say until when."""
_ROOM = 1.25
"""Share of the level above what the rate needs, as answers take unequally long."""


@dataclass(slots=True)
class _Mark:
    """A refusal, or the beginning."""

    time: float
    taken: int


@dataclass(slots=True)
class Throttle:
    """The rate and the level of one server. Not thread-safe. All times are seconds of one clock that never goes back."""

    level: float = math.inf
    """The largest number of requests at once, but for `_needed`; infinite as long as the server has refused none."""
    estimate: float = math.inf
    """Requests in a second that the server allows; infinite likewise."""
    places: ServerPlaces = field(default_factory=ServerPlaces)
    _under_way: dict[int, Sent] = field(default_factory=dict[int, Sent])
    """By number, in the order in which they were sent."""
    _number: int = 0
    _taken: int = 0
    """Requests that were sent and not refused so far."""
    _marks: deque[_Mark] = field(default_factory=deque[_Mark])
    """Since the first of them more requests were waiting than the rate permitted."""
    _basis: _Mark | None = None
    """The mark by which the present estimate was counted."""
    _rate_refused: float = 0.0
    """The rate at the latest refusal; 0 if it was infinite."""
    _latest: _Mark | None = None
    _falls: int = 0
    """Refusals in a row between which a single request was taken, and at which the rate was far above the count."""
    _spaced: int = 0
    """Requests since the last refusal that had to wait for the rate or the level."""
    _is_full: bool = False
    """Whether a request waits for the level."""
    _first_seconds: float = 0.0
    """Between the first request and the last one before the first refusal, at least `_FIRST_SECONDS`. The refusal may arrive
    late, and a server that was closed until then would seem to be slow."""
    _refusals: int = 0
    """Without a request between them that was taken."""
    _closed_since: float = 0.0
    _next: float = 0.0
    _not_before: float = 0.0
    _latency: float = 0.0

    @property
    def rate(self) -> float:
        """Requests in a second that are sent at most."""
        return self.estimate * (1 + (self._spaced / _DOUBLED) ** 3)

    def enter(self, now: float) -> int | float:
        """Returns the number of a request that is sent now, or the seconds (a float) after which to ask again. They are
        infinite if an answer has to come first.
        """
        open_from = self._not_before if self.places.count else max(self._not_before, self._next)
        if now < open_from:
            return open_from - now
        if self._oldest(now) > _FORGOTTEN:
            self._under_way = {n: sent for n, sent in self._under_way.items() if sent.time + _FORGOTTEN > now}
        if full_for := self._full_for(now):
            self._is_full = True
            return full_for
        interval = 1 / self.rate
        if now <= open_from + interval or self._is_full:
            self._spaced += 1
        elif not math.isinf(self.estimate):
            self._marks.clear()  # nobody waited, so that the server may have saved some of its allowance
        self._is_full = False
        if not self._number:
            self._marks.append(_Mark(now, 0))
        self._next = now + interval
        self._number += 1
        self._taken += 1
        self._under_way[self._number] = sent = Sent(now, len(self._under_way), self._gap(now))
        self.places.sent(sent)
        return self._number

    def answered(self, number: int, now: float) -> None:
        """Takes note of an answer."""
        sent = self._under_way.pop(number, None)
        if sent is not None:
            self.places.took(sent)
            took = now - sent.time
            self._latency = took if not self._latency else 0.9 * self._latency + 0.1 * took
            self.level += 1 / self.level

    def failed(self, number: int) -> None:
        """Takes note of a request that failed for another reason."""
        self._under_way.pop(number, None)

    def refused(self, number: int, now: float, wait: float | None) -> bool:
        """Takes note of a refusal. Returns whether it is news: one counts for all requests that were sent before it.

        `wait`: seconds after which the server takes requests again. None: it does not say.
        """
        sent = self._under_way.pop(number, None)
        if sent is None:
            return False
        self._taken -= 1
        later = [mark for mark in (*self._marks, self._latest) if mark is not None and mark.time > sent.time]
        for mark in {id(mark): mark for mark in later}.values():
            mark.taken -= 1
        had_places = self.places.count > 0
        if self.places.explain(sent):
            self._wait(now, wait or 0.0)
            return False
        if had_places:
            self._space_again(now)
        if later and not had_places:
            self._count()
        elif self._latest is not None and self._latest.taken == self._taken:
            self._stay_closed(now)
        else:
            self._slow_down(now)
        if number == self._number:
            self._next = now  # it has not used the time up that was to pass before the next one
        self._wait(now, self._pause() if wait is None else wait)
        if wait is not None and wait > _CLOSED_SECONDS:
            self._marks.clear()
        if self.places.find(self._latency):
            self._marks = deque([_Mark(now, self._taken)])
        return not later

    def _pause(self) -> float:
        # A float holds no 2**1024, and a server may refuse for hours.
        pause = _FIRST_PAUSE * 2 ** min(self._refusals - 1, 20) / self.estimate
        return min(pause, max(_LONGEST_PAUSE, 1 / self.estimate))

    def _wait(self, now: float, seconds: float) -> None:
        self._not_before = max(self._not_before, now + min(seconds, LONGEST_WAIT))

    def _space_again(self, now: float) -> None:
        """Goes on with the rate at which the server took requests while it seemed to have places."""
        if self._marks:
            self.estimate = (self._taken - self._marks[0].taken + 1) / max(now - self._marks[0].time, 1.0)
        self._latest, self._spaced = None, 0

    def _stay_closed(self, now: float) -> None:
        assert self._latest is not None
        self._refusals += 1
        if now > self._closed_since + _CLOSED_SECONDS:
            self._latest.time = now
            self._marks = deque([self._latest])

    def _slow_down(self, now: float) -> None:
        self._refusals, self._closed_since = 1, now
        while len(self._marks) > 1 and self._taken - self._marks[1].taken >= _COUNTED:
            self._marks.popleft()
        self._basis = self._marks[0] if self._marks else None
        self._rate_refused = 0.0 if math.isinf(self.estimate) else self.rate
        if not self._rate_refused:
            self._first_seconds = max(self._next - (self._basis.time if self._basis else now), _FIRST_SECONDS)
            self._marks.clear()  # at first a server takes what it has saved, too
        is_far = self._latest is not None and self._taken - self._latest.taken <= 1
        self._falls = self._falls + 1 if is_far else 1
        self._latest = _Mark(now, self._taken)
        self._marks.append(self._latest)
        self._spaced = 0
        self._count()
        # The refused request itself has left.
        self.level = max(min(self.level, len(self._under_way) + 1) / 2, 1.0)

    def _count(self) -> None:
        """Estimates the rate by the requests that were taken between the basis and the latest refusal."""
        if self._basis is None or self._latest is None:
            self.estimate = _KEPT * self._rate_refused
            return
        seconds = max(self._latest.time - self._basis.time, 1e-3) if self._rate_refused else self._first_seconds
        taken = max(self._latest.taken - self._basis.taken, 0)
        if (taken + 2) / seconds > _FAR * self._rate_refused:
            self._falls = 1
        kept = _KEPT if (taken + 2) / seconds > _AGREES * self._rate_refused else _HALVED**self._falls
        self.estimate = max((taken + 1) / seconds, kept * self._rate_refused)

    def _oldest(self, now: float) -> float:
        """Seconds since the oldest request under way was sent."""
        sent = next(iter(self._under_way.values()), None)
        return 0.0 if sent is None else now - sent.time

    def _gap(self, now: float) -> float:
        """Seconds since the newest request under way was sent."""
        sent = next(reversed(self._under_way.values()), None)
        return math.inf if sent is None else now - sent.time

    def _full_for(self, now: float) -> float:
        """Seconds until one more may be under way; infinite if an answer has to come first."""
        beside, places = len(self._under_way), self.places.count
        if not places:
            return math.inf if beside >= max(self.level // 1, self._needed(now)) else 0.0
        if beside < places:
            return 0.0
        tried_after = self.places.seconds_to_try(self._latency) if beside == places else None
        return math.inf if tried_after is None else max(tried_after - self._gap(now), 0.0)

    def _needed(self, now: float) -> int:
        """Requests at once that the rate needs."""
        return math.ceil(_ROOM * min(self.rate, 1e6) * max(self._latency, self._oldest(now))) + 1
