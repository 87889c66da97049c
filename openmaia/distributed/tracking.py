"""Passes the progress of a run and the statistics of its pools to a tracker."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from ray.exceptions import RayError

from openmaia.agent.loop import InvestigationResult
from openmaia.core.errors import OpenMaiaError
from openmaia.distributed.assembly import Progress
from openmaia.distributed.pools.handles import Pools
from openmaia.reporting.tracking import Tracker

_END_SECONDS = 5.0
"""Longest wait at the end of a run for the thread that samples the statistics of the pools."""


@dataclass(frozen=True, slots=True)
class TrackedProgress:
    """Passes the progress of a run to a view and, if there is one, to a tracker."""

    view: Progress
    tracker: Tracker | None = None

    def say(self, line: str) -> None:
        self.view.say(line)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        self.view.progress(stage, done, total, note)
        if self.tracker is not None:
            self.tracker.progress(stage, done, total)

    def ended(self, result: InvestigationResult) -> None:
        """Passes the result of an investigation to the tracker."""
        if self.tracker is not None:
            self.tracker.ended(result)


@contextmanager
def sampled(pools: Pools, tracker: Tracker | None, every: float) -> Generator[None]:
    """Context manager in which a thread passes the statistics of the pools to the tracker every `every` seconds."""
    if tracker is None:
        yield
        return
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            try:
                counts = {role: asdict(one) | {"failures": one.failed} for role, one in pools.statistics().items()}
                tracker.sample(counts)
            except (OpenMaiaError, RayError):
                pass  # a dispatcher is being restarted; the next sample includes it again
            over.wait(every)

    thread = threading.Thread(target=sample, name="sampling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_END_SECONDS)
