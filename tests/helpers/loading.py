"""Load on a pool, with every request counted: where it was answered, and how often."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from openmaia.distributed.pools.handles import PoolAddress
from tests.helpers.sleeping import Handle


@contextmanager
def repeating(call: Callable[[int], None], callers: int) -> Iterator[None]:
    """So many threads repeat a call, each with its number, until the end of the block. What a call raises is raised there."""
    over = threading.Event()

    def repeat(caller: int) -> None:
        while not over.is_set():
            call(caller)

    with ThreadPoolExecutor(callers) as threads:
        calls = [threads.submit(repeat, caller) for caller in range(callers)]
        try:
            yield
        finally:
            over.set()
    for ended in calls:
        ended.result()


@dataclass(frozen=True)
class Counted:
    """A host that writes down each number that it is asked to double. seconds: per batch."""

    log: str
    seconds: float

    def double(self, numbers: Sequence[int]) -> list[int]:
        with open(self.log, "a") as log:
            log.write("".join(f"{number}\n" for number in numbers))
        time.sleep(self.seconds)
        return [2 * number for number in numbers]


@dataclass
class Load:
    """Numbers that a pool of `Counted` hosts is asked to double, each of them once."""

    log: Path
    asked: list[int] = field(default_factory=list[int])
    wrong: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def on(self, address: PoolAddress, callers: int, size: int) -> Iterator[None]:
        """So many callers ask for so many numbers at a time, until the end of the block."""

        def call(caller: int) -> None:
            numbers = [next(self.numbers) for _ in range(size)]
            self.wrong += handles[caller].ask("double", numbers) != [2 * number for number in numbers]
            self.asked.extend(numbers)

        handles = [Handle(address, f"caller {caller}") for caller in range(callers)]
        with repeating(call, callers):
            yield

    def counted(self) -> dict[str, int]:
        """How many answers were wrong, and how many requests reached no host or reached hosts more than once."""
        times = Counter(map(int, self.log.read_text().split()))
        return {
            "wrong": self.wrong,
            "lost": sum(not times[number] for number in self.asked),
            "repeated": sum(times[number] > 1 for number in self.asked),
        }


FLAWLESS = {"wrong": 0, "lost": 0, "repeated": 0}
