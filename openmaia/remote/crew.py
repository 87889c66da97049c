"""The investigating processes of a run: how many there are, who has room, who has died.

They are spread over the nodes. One that finds no room on the cluster waits for it, and takes part as soon as a node is
added; those of a node that is removed are hired anew elsewhere.
"""

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayTaskError

from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.remote.failures import DEAD, plain
from openmaia.remote.investigator import Job
from openmaia.remote.placement import held
from openmaia.schema import Config

STARTS = 5
"""So many processes in a row may die while they start before the run is given up."""

END_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Member:
    """room: investigations at once. alone: made for one suspect at a time. with_others: it died while it ran several."""

    actor: Any
    room: int
    alone: bool
    is_up: bool = False
    is_gone: bool = False
    with_others: bool = False
    under_way: set[str] = field(default_factory=set[str])

    @property
    def free(self) -> int:
        return self.room - len(self.under_way) if self.is_up else 0


@dataclass(frozen=True, slots=True)
class Ended:
    """An investigation that has ended. future: holds its Result, or Ray's exception."""

    given: Any
    caller: str
    future: Future[Any]
    with_others: bool


@dataclass(frozen=True, slots=True)
class _Event:
    """given: None for a start."""

    member: Member
    given: Any
    caller: str
    future: Future[Any]


class Crew:
    def __init__(self, config: Config, jobs: Sequence[Job], investigator: Any):
        self._ray, self._jobs, self._investigator = config.ray, list(jobs), investigator
        self._size = min(config.ray.investigations_per_process, largest(config))
        self._members: list[Member] = []
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._deaths = 0

    def hire(self, under_way: int, waiting: int, suspects: int) -> None:
        """So many processes that what is under way and what waits find room, within ray.investigations; one for each
        suspect besides. Who has nothing to do makes room for suspects, on the cluster too; and they for others."""
        if not suspects:
            self._dismiss_idle(alone=True)
        elif not waiting:
            self._dismiss_idle(alone=False)
        singles = [m for m in self._members if m.alone]
        for _ in range(min(suspects - len(singles), self._left)):
            self._start(1, alone=True)
        while (missing := min(under_way + waiting + suspects - self._room(), self._left)) > 0:
            self._start(min(self._size, missing), alone=False)

    def free(self, *, alone: bool) -> Member | None:
        """The one with the most room."""
        found = max((m for m in self._members if m.alone is alone), key=lambda m: m.free, default=None)
        return found if found is not None and found.free > 0 else None

    def ask(self, member: Member, given: Any, caller: str, *arguments: Any) -> None:
        member.under_way.add(caller)
        self._watch(member.actor.investigate.remote(*arguments, caller), member, given, caller)

    def ended(self) -> Iterator[Ended]:
        """Waits a moment for something to happen, then gives all that has ended."""
        try:
            event = self._events.get(timeout=1)
            while True:
                if event.given is None:
                    self._started(event)
                else:
                    yield self._ended(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def end(self) -> None:
        """Lets everybody tidy up."""
        ending = [m.actor.end.remote() for m in self._members if m.is_up]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=END_SECONDS)

    def stop(self) -> None:
        for member in self._members:
            ray.kill(member.actor)

    @property
    def _left(self) -> int:
        return self._ray.investigations - self._room()

    def _room(self) -> int:
        return sum(m.room for m in self._members)

    def _start(self, room: int, *, alone: bool) -> None:
        actor = self._investigator.options(
            num_cpus=room * self._ray.cpus_per_investigation,
            memory=room * self._ray.memory_mb * 2**20,
            max_concurrency=room,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        ).remote(self._jobs, room)
        member = Member(actor=actor, room=room, alone=alone)
        self._members.append(member)
        self._watch(actor.start.remote(), member, None, "")

    def _watch(self, reference: Any, member: Member, given: Any, caller: str) -> None:
        def tell(future: Future[Any]) -> None:
            self._events.put(_Event(member, given, caller, future))

        reference.future().add_done_callback(tell)

    def _started(self, event: _Event) -> None:
        """Raises the user's mistake, where the start found one."""
        member = event.member
        try:
            event.future.result()
            member.is_up, self._deaths = True, 0
        except RayTaskError as error:
            if isinstance(error.cause, OpenMaiaError):
                raise error.cause from None
            raise ServiceError(f"an investigating process could not start: {plain(error)}") from error
        except DEAD as error:
            if member.is_gone:
                return
            self._deaths += 1
            self._dismiss(member)
            if self._deaths >= STARTS:
                raise ServiceError(f"{STARTS} investigating processes died as they started: {plain(error)}") from error

    def _ended(self, event: _Event) -> Ended:
        member = event.member
        if isinstance(event.future.exception(), DEAD) and not member.is_gone:
            member.with_others = len(member.under_way) > 1
            self._dismiss(member)
        member.under_way.discard(event.caller)
        return Ended(event.given, event.caller, event.future, member.with_others)

    def _dismiss_idle(self, *, alone: bool) -> None:
        for member in [m for m in self._members if m.alone is alone and not m.under_way]:
            self._dismiss(member)

    def _dismiss(self, member: Member) -> None:
        member.is_gone = True
        self._members.remove(member)
        ray.kill(member.actor)


def largest(config: Config) -> int:
    """Investigations for which the largest node has room beside what pools hold there, at least 1."""
    taken = held()

    def room(resources: dict[str, float]) -> int:
        cpus, memory = config.ray.cpus_per_investigation, config.ray.memory_mb * 2**20
        by_cpus = resources.get("CPU", 0) / cpus if cpus else float("inf")
        return int(min(by_cpus, resources.get("memory", 0) / memory, config.ray.investigations))

    def free(node: dict[str, Any]) -> dict[str, float]:
        return {name: amount - taken[node["NodeID"]][name] for name, amount in node["Resources"].items()}

    return max([1, *(room(free(node)) for node in ray.nodes() if node["Alive"])])
