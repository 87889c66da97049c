"""Prints the messages and the progress of a function of the Python API as lines, which read well in notebooks and logs."""

import time
from dataclasses import dataclass, field

from openmaia.core.secrets import redacted

SECONDS = 5.0
"""Shortest time in seconds between two lines about the progress of one stage."""


@dataclass(slots=True)
class PrintedProgress:
    """Prints messages and progress; an implementation of `openmaia.distributed.assembly.Progress`."""

    _last: dict[str, float] = field(default_factory=dict[str, float])
    """The time of the last line about each stage."""

    def say(self, line: str) -> None:
        """Prints a message."""
        print(redacted(line), flush=True)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Prints how much of a stage is done, at most once every SECONDS seconds. A call with a note is always printed.

        Args:
            stage: The name of the stage, such as "investigations".
            done: How many items of the stage are done.
            total: How many items the stage has.
            note: A text about the last item, which is printed with the numbers. May be empty.
        """
        now = time.monotonic()
        since = self._last.setdefault(stage, now)
        if note:
            self.say(f"{stage}: {done} of {total}: {note}")
        elif now - since >= SECONDS:
            self._last[stage] = now
            self.say(f"{stage}: {done} of {total}")
