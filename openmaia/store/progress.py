"""What a driver says about its run while it drives: which investigations run since when, and how fast they end."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.errors import StoreError
from openmaia.store.records import dumps
from openmaia.store.run import Owed, Run
from openmaia.units import Unit

FILE = "progress.json"
EVERY = 2.0
"""Seconds between two writings."""

STALE = 30.0
"""Seconds after which what was written is no longer believed."""


class Progress:
    """Written while a run is driven. ended: investigations since the driver began."""

    def __init__(self, run: Run):
        self._run = run
        self._began = time.time()
        self._written = 0.0
        self.ended = 0

    def write(self, running: Sequence[tuple[Owed, float]]) -> None:
        """running: with the time at which each began. Does nothing where it was written a moment ago."""
        now = time.time()
        if now < self._written + EVERY:
            return
        rows = [[o.unit.target, o.unit.layer, o.unit.index, o.replicate, round(since, 1)] for o, since in running]
        text = dumps({"time": now, "began": self._began, "ended": self.ended, "running": rows})
        try:
            self._run.files.write(FILE, text.encode())
        except StoreError:
            return  # nothing depends on it, and the next one may succeed
        self._written = now

    def close(self) -> None:
        try:
            self._run.files.delete(FILE)
        except OSError:
            return


@dataclass(frozen=True, slots=True)
class Now:
    """per_second: investigations that ended, a mean since the driver began; 0 at first. running: since when."""

    per_second: float
    running: dict[Owed, float]


def read(run: Run) -> Now | None:
    """None where nobody drives the run."""
    try:
        found: dict[str, Any] | None = json.loads(run.files.read(FILE) or b"null")
    except ValueError:
        return None
    if found is None or time.time() - found["time"] > STALE:
        return None
    running = {
        Owed(unit=Unit(target=target, layer=layer, index=index), replicate=replicate): since
        for target, layer, index, replicate, since in found["running"]
    }
    seconds = found["time"] - found["began"]
    return Now(found["ended"] / seconds if seconds > 0 else 0.0, running)
