"""Room for the replicas of a run's pools: taken all at once or not at all, and packed into as few nodes as will do (replica
by replica where the cluster grows).

Replicas that take their GPUs one by one, as they come, get in each other's way: one that wants a single card may take it on
the only node with room for one that wants several, which then waits for ever; and of two runs that start at the same time
each may hold half of what it needs and wait for the other half.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from openmaia.remote.wish import Claim

SILENT = 5
"""Seconds of waiting for room before a word about it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one replica. When its node is lost, Ray finds it elsewhere, as soon as there is any."""

    group: PlacementGroup
    index: int

    def strategy(self) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(self.group, self.index)


@contextmanager
def reserved(
    claims: Sequence[Claim], say: Callable[[str], None], *, grows: bool = False
) -> Iterator[list[list[Place]]]:
    """The places of each claim, as many as it counts; none for a claim that holds no GPU and no CPU. They are given back at
    the end, or when this process dies.

    Waits until there is room for all of them. grows: nodes come for one replica after the other, so that waiting for all
    could be waiting in vain: only the first of each claim is waited for, lest investigations take its room.
    """
    counts = [claim.count if _bundle(claim) else 0 for claim in claims]
    wanted = [claim for claim, count in zip(claims, counts, strict=True) for _ in range(count)]
    together = [[claim] for claim in wanted] if grows else [wanted] if wanted else []
    groups = [_group(members) for members in together]
    try:
        free = (Place(g, i) for g, members in zip(groups, together, strict=True) for i in range(len(members)))
        places = [list(islice(free, count)) for count in counts]
        _wait([mine[0].group for mine in places if mine], say)
        yield places
    finally:
        for group in groups:
            remove_placement_group(group)


def held() -> defaultdict[str, Counter[str]]:
    """By node, how much of each resource the places of all runs hold there."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in placement_group_table().values():
        if group["state"] != "REMOVED":
            for bundle, node in group["bundles_to_node_id"].items():
                found[node].update(group["bundles"][bundle])
    return found


def _group(members: Sequence[Claim]) -> PlacementGroup:
    labels: Any = [dict(claim.labels) for claim in members] if any(claim.labels for claim in members) else None
    return placement_group([_bundle(claim) for claim in members], strategy="PACK", bundle_label_selector=labels)


def _wait(groups: Sequence[PlacementGroup], say: Callable[[str], None]) -> None:
    is_said = False
    for group in groups:
        while not group.wait(SILENT):
            if not is_said:
                say("waiting for GPUs and CPUs that others hold, or nodes that are still to come")
                is_said = True


def _bundle(claim: Claim) -> dict[str, float]:
    return {name: amount for name, amount in (("GPU", claim.gpus), ("CPU", claim.cpus)) if amount}
