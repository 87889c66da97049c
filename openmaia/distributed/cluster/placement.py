"""Reserves the resources of all initial replicas at once with Ray placement groups, packed into few nodes.

If replicas took their GPUs one by one, they could block each other. A replica with one GPU could occupy the only node
that has room for a replica with several GPUs. Two runs that start together could each hold half of their GPUs and wait
for the rest.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from openmaia.distributed.cluster.resources import ROUNDING, ResourceRequest

_SILENT_SECONDS = 5
"""Time after which the user is told that the reservation is still waiting for resources."""


@dataclass(frozen=True, slots=True)
class Place:
    """Reserved resources for one replica: a bundle of a Ray placement group.

    If the node of the bundle is lost, Ray moves the bundle.
    """

    group: PlacementGroup
    index: int
    """The index of the bundle in the group."""
    room: ResourceRequest
    """The reserved resources."""

    def strategy(self) -> PlacementGroupSchedulingStrategy:
        """Returns the Ray scheduling strategy that starts an actor in the place."""
        return PlacementGroupSchedulingStrategy(self.group, self.index)


class FreePlaces:
    """Reserved resources that are no longer used by the pool for which they were reserved. Other pools may take them.

    The resources stay reserved until the run ends, because Ray can only remove a placement group as a whole.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[PlacementGroup, int], Place] = {}

    def give_back(self, place: Place) -> None:
        """Adds the resources of a replica that has ended."""
        self._add(place, 1)

    def count(self, request: ResourceRequest) -> int:
        """Returns for how many replicas the free resources suffice. The `count` of the request is ignored."""
        return sum(_fits(place.room, request) for place in self._places.values())

    def take(self, request: ResourceRequest) -> Place | None:
        """Removes and returns the resources for one replica. The `count` of the request is ignored.

        Returns:
            None if the free resources do not suffice, or if the replica needs neither GPUs nor CPUs.
        """
        for place in sorted(self._places.values(), key=lambda one: one.room.gpus):
            if _fits(place.room, request):
                taken = replace(place, room=replace(request, count=1, labels=place.room.labels))
                self._add(taken, -1)
                return taken
        return None

    def _add(self, place: Place, sign: int) -> None:
        key = place.group, place.index
        before = self._places.get(key, replace(place, room=replace(place.room, gpus=0.0, cpus=0.0))).room
        gpus, cpus = before.gpus + sign * place.room.gpus, before.cpus + sign * place.room.cpus
        self._places[key] = replace(place, room=replace(before, gpus=gpus, cpus=cpus))


def _fits(room: ResourceRequest, request: ResourceRequest) -> int:
    parts = [(room.gpus, request.gpus), (room.cpus, request.cpus)]
    if not _bundle(request) or not request.labels.items() <= room.labels.items():
        return 0
    return min(int(free / wanted + ROUNDING) for free, wanted in parts if wanted)


@contextmanager
def reserve(
    requests: Sequence[ResourceRequest], say: Callable[[str], None], *, grows: bool = False
) -> Generator[list[list[Place]]]:
    """Context manager that reserves resources until its end, or until this process dies. It waits until they are free.

    All replicas share one placement group, which Ray reserves as a whole.

    Args:
        requests: Each for a number of equal replicas. Requests without GPUs and CPUs are skipped.
        say: Receives a message if the resources are not free yet.
        grows: Whether the cluster is autoscaled, so that it adds nodes for one replica after another. If so, each
            replica gets its own placement group, and the context manager waits only for the first replica of each
            request.

    Yields:
        One list for each request with a `Place` for each of its replicas. The list of a skipped request is empty.
    """
    places: list[list[Place]] = [[] for _ in requests]
    wanted = [(number, one) for number, one in enumerate(requests) if _bundle(one) for _ in range(one.count)]
    for members in [[one] for one in wanted] if grows else [wanted] if wanted else []:
        group = _group([one for _, one in members])
        for index, (number, one) in enumerate(members):
            places[number].append(Place(group, index, one))
    try:
        _wait({place.group: None for mine in places for place in (mine[:1] if grows else mine)}, say)
        yield places
    finally:
        for group in {place.group for mine in places for place in mine}:
            with suppress(RayError):
                remove_placement_group(group)


def held() -> defaultdict[str, Counter[str]]:
    """Returns the amount of each resource that the placement groups of all runs reserve on each node, by node id."""
    amounts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in placement_group_table().values():
        if group["state"] != "REMOVED":
            for bundle, node in group["bundles_to_node_id"].items():
                amounts[node].update(group["bundles"][bundle])
    return amounts


def _group(members: Sequence[ResourceRequest]) -> PlacementGroup:
    labels: Any = [dict(request.labels) for request in members] if any(request.labels for request in members) else None
    return placement_group([_bundle(request) for request in members], strategy="PACK", bundle_label_selector=labels)


def _wait(groups: Iterable[PlacementGroup], say: Callable[[str], None]) -> None:
    is_said = False
    for group in groups:
        while not group.wait(_SILENT_SECONDS):
            if not is_said:
                say("waiting for GPUs and CPUs that others hold, or nodes that are still to come")
                is_said = True


def _bundle(request: ResourceRequest) -> dict[str, float]:
    return {name: amount for name, amount in (("GPU", request.gpus), ("CPU", request.cpus)) if amount}
