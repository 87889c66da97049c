"""A unit with a known truth, and how it answers.

Real units are graded, uneven and noisy, and so are these: evidence is raised to an exponent and scaled by a gain; a
second concept counts a little less than the first; a concept that is no part of the truth leaks in; and each picture
gets its own deviation, drawn by its digest and the unit's key, in proportion to the answer and beside it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from openmaia.targets.closed_form.concepts import Concept
from openmaia.targets.closed_form.seen import Plane

Find = Callable[[Concept], Plane]
"""The map of a concept on the picture at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Concepts that have to be there together, at about one place. weight: of this slot beside the others."""

    concepts: tuple[Concept, ...]
    weight: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(concept.name for concept in self.concepts)

    def evidence(self, find: Find) -> Plane:
        maps = [find(concept) for concept in self.concepts]
        if len(maps) > 1:
            # A figure and its ground, or ink and paper, are neighbours, not the same cells.
            maps = [ndimage.maximum_filter(one, 3, mode="nearest") for one in maps]
        return np.min(maps, axis=0) * np.float32(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    concept: Concept
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """slots: any of them excites the unit. pooling: cells each way over which evidence is averaged. noise: a share of the gain, and three times that of the answer. key: what
    the noise is drawn by, besides the picture."""

    slots: tuple[Slot, ...]
    pooling: int = 1
    exponent: float = 1.0
    gain: float = 1.0
    noise: float = 0.0
    leak: Leak | None = None
    key: str = ""

    @property
    def truth(self) -> tuple[tuple[str, ...], ...]:
        """The names of the slots' concepts."""
        return tuple(slot.names for slot in self.slots)

    def respond(self, find: Find, digest: str) -> Plane:
        """(GRID, GRID) float32."""
        evidence = np.max([slot.evidence(find) for slot in self.slots], axis=0)
        if self.pooling > 1:
            evidence = ndimage.uniform_filter(evidence, self.pooling, mode="nearest")
        evidence = np.clip(evidence, 0, 1) ** np.float32(self.exponent)
        if self.leak is not None:
            evidence = evidence + np.float32(self.leak.weight) * find(self.leak.concept)
        if self.noise:
            words = hashlib.sha256(f"{self.key} {digest}".encode()).digest()
            own, beside = np.random.default_rng(int.from_bytes(words[:8])).normal(0, self.noise, 2)
            evidence = evidence * (1 + 3 * own) + beside
        return (evidence * self.gain).astype(np.float32)
