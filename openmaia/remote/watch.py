"""Whoever looks on besides the terminal: the tracker hears of what the terminal shows, and of the pools' counters."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from ray.exceptions import RayError

from openmaia.agent.attempt import Result
from openmaia.errors import OpenMaiaError
from openmaia.remote.services import Pools
from openmaia.remote.view import View
from openmaia.tracking import Tracker

ENDING = 5.0
"""Seconds to wait for a sample under way when the pools are about to end."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A view, and the tracker beside it."""

    view: View
    tracker: Tracker

    def say(self, line: str) -> None:
        self.view.say(line)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        self.view.progress(stage, done, total, note)
        self.tracker.progress(stage, done, total)

    def ended(self, result: Result) -> None:
        self.tracker.ended(result)


@contextmanager
def sampled(pools: Pools, tracker: Tracker, every: float) -> Iterator[None]:
    """Tells the tracker what the pools count, now and then, from a thread of its own."""
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            try:
                tracker.sample(
                    {
                        role: asdict(counters) | {"failures": counters.failed}
                        for role, counters in pools.counters().items()
                    }
                )
            except (OpenMaiaError, RayError):
                pass  # a dispatcher that is being started again; the next sample has it
            over.wait(every)

    thread = threading.Thread(target=sample, name="sampling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(ENDING)
