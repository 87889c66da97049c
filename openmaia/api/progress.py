"""Prints messages and progress as lines, which read well in notebooks and logs."""

import time
from dataclasses import dataclass, field

from openmaia.core.secrets import redacted

_SECONDS = 5.0
"""Shortest time between two lines about the progress of one stage."""


@dataclass(slots=True)
class PrintedProgress:
    """Implements `openmaia.distributed.assembly.Progress`."""

    _last: dict[str, float] = field(default_factory=dict[str, float])

    def say(self, line: str) -> None:
        """Prints a message."""
        print(redacted(line), flush=True)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Prints how much of a stage is done, at most once every _SECONDS seconds, unless there is a note."""
        now = time.monotonic()
        since = self._last.setdefault(stage, now)
        if note:
            self.say(f"{stage}: {done} of {total}: {note}")
        elif now - since >= _SECONDS:
            self._last[stage] = now
            self.say(f"{stage}: {done} of {total}")
