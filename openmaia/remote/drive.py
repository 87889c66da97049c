"""Drives plans: bounded submission of investigations to investigating processes, failed ones again while they have tries left.

What the driver holds does not grow with the number of units: they are taken from the plan as there is room, and a result
is forgotten when it was handed on.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ray.exceptions import RayTaskError

from openmaia.agent.attempt import Result
from openmaia.errors import OpenMaiaError
from openmaia.remote.crew import Crew, Ended, Member
from openmaia.remote.failures import DEAD, plain
from openmaia.remote.investigator import Job, RemoteInvestigator
from openmaia.schema import Config
from openmaia.store.run import Owed

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Try:
    """job: its number. tries: before this one. alone: its last process died while it ran others too, so that nobody knows
    whose doing it was: now it gets a process of its own."""

    job: int
    owed: Owed
    tries: int = 0
    alone: bool = False


Looker = Callable[[Sequence["UnderWay"]], None]


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An investigation that runs. job: its number. since: when this try began, in seconds since 1970."""

    job: int
    owed: Owed
    since: float


def drive(
    config: Config,
    jobs: Sequence[Job],
    look: Looker = lambda running: None,
    investigator: Any = RemoteInvestigator,
) -> Iterator[tuple[int, Result]]:
    """Yields the number of the job and the final result of every unit, in the order in which they end. The jobs take
    turns. config: says how wide to run (ray.*, retries). look: called about once a second. investigator: a remote class
    like Investigator. Raises UsageError where no investigation can start."""
    driver = _Driver(config, jobs, look, investigator)
    try:
        yield from driver.results()
        driver.crew.end()
    finally:
        driver.crew.stop()


class _Driver:
    def __init__(self, config: Config, jobs: Sequence[Job], look: Looker, investigator: Any):
        self._retries, self._width = config.retries, config.ray.investigations
        self._jobs, self._look = jobs, look
        self._fresh = _take_turns(jobs)
        self._waiting: deque[Try] = deque()
        self._suspects: deque[Try] = deque()
        self._under_way: dict[str, UnderWay] = {}
        self._over: defaultdict[int, list[str]] = defaultdict(list)
        self._asked = 0
        self._looked = 0.0
        self.crew = Crew(config, jobs, investigator)

    def results(self) -> Iterator[tuple[int, Result]]:
        while True:
            # One look ahead is all that is known of what is left, so the crew grows as units are there for it.
            self._waiting.extend(islice(self._fresh, max(self._width - len(self._under_way) - len(self._waiting), 0)))
            if not (self._under_way or self._waiting or self._suspects):
                self._tell_over()
                return
            self.crew.hire(len(self._under_way), len(self._waiting), len(self._suspects))
            self._hand_out()
            self._let_look()
            for ended in self.crew.ended():
                yield from self._settled(ended)

    def _hand_out(self) -> None:
        while self._suspects and (member := self.crew.free(alone=True)):
            self._ask(member, self._suspects.popleft())
        while self._waiting and (member := self.crew.free(alone=False)):
            self._ask(member, self._waiting.popleft())

    def _ask(self, member: Member, given: Try) -> None:
        self._asked += 1
        # The last number makes every try another caller: what is dropped for one must not hit the next.
        caller = f"{self._jobs[given.job].run.name}/{given.owed.unit}/{given.owed.replicate}/{self._asked}"
        self._under_way[caller] = UnderWay(given.job, given.owed, time.time())
        self.crew.ask(member, given, caller, given.job, given.owed)

    def _let_look(self) -> None:
        if time.monotonic() >= self._looked + LOOK_SECONDS:
            self._look(list(self._under_way.values()))
            self._tell_over()
            self._looked = time.monotonic()

    def _tell_over(self) -> None:
        """Many at once: a call each would be a quarter of what an investigation costs the driver."""
        for number, callers in self._over.items():
            self._jobs[number].pools.over(callers)
        self._over.clear()

    def _settled(self, ended: Ended) -> Iterator[tuple[int, Result]]:
        given: Try = ended.given
        del self._under_way[ended.caller]
        job = self._jobs[given.job]
        result = _result(job, given, ended)
        if result is not None and result.summary is not None:
            self._over[given.job].append(ended.caller)
        else:
            job.pools.leave(ended.caller)
        if result is None:
            self._suspects.append(replace(given, alone=True))
        elif result.summary is None and given.tries < self._retries:
            again = replace(given, tries=given.tries + 1)
            (self._suspects if given.alone else self._waiting).append(again)
        else:
            yield given.job, result


def _result(job: Job, given: Try, ended: Ended) -> Result | None:
    """What a dead process leaves is a failed unit, too; None where it may have been another unit's doing."""
    try:
        return ended.future.result()
    except RayTaskError as error:
        cause = error.cause
        said = f"{type(cause).__name__}: {cause.message}" if isinstance(cause, OpenMaiaError) else plain(error)
    except DEAD:
        said = "ServiceError: the investigating process died"
        summary = job.run.summary(given.owed)
        if summary is not None:  # it died behind the publication
            return Result(owed=given.owed, summary=summary)
        if ended.with_others:
            return None
    job.run.fail(given.owed, said)
    return Result(owed=given.owed, summary=None, cause=said)


def _take_turns(jobs: Sequence[Job]) -> Iterator[Try]:
    """One unit of each job in turn, so that the pools of all targets have work until the end."""
    left = deque((number, job.run.to_do()) for number, job in enumerate(jobs))
    while left:
        number, units = left.popleft()
        owed = next(units, None)
        if owed is not None:
            yield Try(number, owed)
            left.append((number, units))
