"""Shows which investigations run, with their turns and ages, below the progress bars of a command."""

import time
from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.table import Table

from openmaia.cli.terminal.output import console
from openmaia.cli.terminal.runs import SECONDS, running_table
from openmaia.core.errors import StoreError
from openmaia.runs import progress
from openmaia.runs.run import Run
from openmaia.runs.state import RunningInvestigation

_SHOWN = 8
"""Largest number of investigations that are shown."""


def running_investigations(runs: Sequence[Run]) -> Callable[[], RenderableType | None]:
    """Returns a function that returns a table of the oldest running investigations of these runs.

    The function returns None if no investigation is running, or if the output is not a terminal. However often it is
    called, it reads the progress files of the runs at most every two seconds.
    """
    shown: Table | None = None
    read_at = float("-inf")

    def table() -> RenderableType | None:
        nonlocal shown, read_at
        if console.is_terminal and time.monotonic() >= read_at + SECONDS:
            try:
                running = [each for run in runs for each in _running(run)]
                shown = running_table(running, _SHOWN) if running else None
            except (OSError, StoreError):
                shown = None  # the run directory cannot be reached for the moment
            read_at = time.monotonic()
        return shown

    return table


def _running(run: Run) -> list[RunningInvestigation]:
    driver = progress.read(run)
    now = driver.now if driver else 0.0
    began = sorted(driver.running.items(), key=lambda item: item[1]) if driver else []
    turns = [run.turns_of(investigation) for investigation, _ in began[:_SHOWN]]
    turns += [0] * (len(began) - len(turns))
    return [
        RunningInvestigation(investigation=investigation, turn=turn + 1, seconds=now - since)
        for (investigation, since), turn in zip(began, turns, strict=True)
    ]
