"""The progress file, in which the driver lists the running investigations and counts those that have ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.runs.ids import InvestigationId
from openmaia.runs.records import dumps
from openmaia.runs.run import Run

_FILE = "progress.json"

_EVERY = 2.0
"""Minimum time in seconds between two writes of the progress file."""

_STALE = 30.0
"""Age in seconds from which on a file that was not seen to change is ignored. Clocks of two hosts differ."""

_seen: dict[str, float] = {}
"""The time in each progress file when this process first read it."""


class ProgressFile:
    """Writes the progress file of a run."""

    def __init__(self, run: Run):
        self._run = run
        self._began = time.time()
        self._written = 0.0
        self.ended = 0
        """Number of investigations that have ended since the driver began. The driver counts them."""

    def write(self, running: Sequence[tuple[InvestigationId, float]]) -> None:
        """Writes the running investigations, each with its begin in seconds since 1970, unless the file was written a
        moment ago.

        Errors are ignored.
        """
        now = time.time()
        if now < self._written + _EVERY:
            return
        rows = [
            [each.unit.target, each.unit.layer, each.unit.index, each.replicate, round(since, 1)]
            for each, since in running
        ]
        text = dumps({"time": now, "began": self._began, "ended": self.ended, "running": rows})
        try:
            self._run.investigations.write(_FILE, text.encode())
        except StoreError:
            return  # nothing depends on the file, and the next write may succeed
        self._written = now

    def close(self) -> None:
        """Deletes the progress file."""
        try:
            self._run.investigations.delete(_FILE)
        except OSError:
            return


@dataclass(frozen=True, slots=True)
class DriverProgress:
    """The content of a run's progress file."""

    per_second: float
    """Number of investigations that have ended per second since the driver began."""
    running: dict[InvestigationId, float]
    """The begin of each running investigation in seconds since 1970, by the clock of the driver."""
    now: float
    """When the driver wrote the file, by its clock."""


def read(run: Run) -> DriverProgress | None:
    """Reads the progress file of a run. None if it is missing, damaged or outdated."""
    try:
        values: Any = parse_json(run.investigations.read(_FILE) or b"null")
    except ValueError:
        return None
    if find_mistyped(values, _Progress) is not None or not run.is_driven():
        return None
    path = run.investigations.path(_FILE)
    if abs(time.time() - values["time"]) > _STALE and _seen.setdefault(path, values["time"]) == values["time"]:
        return None
    running = {
        InvestigationId(unit=Unit(target=target, layer=layer, index=index), replicate=replicate): since
        for target, layer, index, replicate, since in values["running"]
    }
    seconds = values["time"] - values["began"]
    return DriverProgress(values["ended"] / seconds if seconds > 0 else 0.0, running, values["time"])


@dataclass(frozen=True, slots=True)
class _Progress:
    """The types in a progress file."""

    time: float
    began: float
    ended: int
    running: list[tuple[str, str, int, int, float]]
