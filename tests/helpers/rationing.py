"""A server that allows so many requests in a time, and refuses the others with status 429."""

import math
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate

from tests.helpers.misbehaving import Act, Asked, answer


@dataclass
class Ration:
    """A bucket that gets `per_second` tokens and holds `holds` at most. Each answered request takes one.

    says: how a refusal names the time to wait: `seconds`, `date`, or "" for not at all.
    closed_until: until this time of a monotonic clock, all requests are refused.
    """

    per_second: float
    holds: float = 1.0
    says: str = "seconds"
    takes: float = 0.05
    closed_until: float = 0.0
    answered: list[float] = field(default_factory=list)
    refused: int = 0
    _tokens: float = 1.0
    _filled: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def act(self, asked: Asked) -> Act:
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self._tokens + (now - self._filled) * self.per_second, self.holds)
            self._filled = now
            if now < self.closed_until or self._tokens < 1:
                self.refused += 1
                wait = max((1 - self._tokens) / self.per_second, self.closed_until - now, 0.0)
                return Act(status=429, body={"error": {"message": "slow down"}}, headers=self._headers(wait))
            self._tokens -= 1
            self.answered.append(now)
        return Act(body=answer(asked, "yes"), delay=self.takes)

    def _headers(self, wait: float) -> dict[str, str]:
        match self.says:
            case "seconds":
                return {"retry-after": str(math.ceil(wait))}
            case "date":
                now = math.floor(time.time())
                # A date has whole seconds, too.
                return {
                    "date": formatdate(now, usegmt=True),
                    "retry-after": formatdate(now + math.ceil(wait), usegmt=True),
                }
            case _:
                return {}
