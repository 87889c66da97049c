"""A closed-form unit: a synthetic unit whose activation is a formula over the evidence for concepts in an image.

The truth of a unit is one or more slots. A slot holds the concepts that must occur together, and each slot alone
activates the unit. Like the activations of networks, those of closed-form units are graded and noisy: evidence is
raised to an exponent and scaled by a gain, the second slot has a slightly lower weight than the first, and a concept
that is not part of the truth (the leak) adds to the activation. The noise depends on the digest of the image and on the
unit's key. One part of it is proportional to the activation, and the other is additive.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from openmaia.offline.closed_form.concepts import Concept
from openmaia.offline.closed_form.view import EvidenceMap

EvidenceLookup = Callable[[Concept], EvidenceMap]
"""Returns the evidence map of a concept in one image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Concepts that must occur together at about the same place to activate a unit."""

    concepts: tuple[Concept, ...]
    weight: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slot's concepts, which must occur together to activate the unit."""
        return tuple(concept.name for concept in self.concepts)

    def evidence(self, lookup: EvidenceLookup) -> EvidenceMap:
        """Returns a map of the evidence that all concepts of the slot occur together in an image.

        Its value in each cell is the smallest evidence for any of the concepts, multiplied by the weight of the slot.
        If there are several concepts, the evidence map of each is first dilated by one cell.

        Args:
            lookup: Returns the evidence map of a concept, which tells where the image shows it.
        """
        maps = [lookup(concept) for concept in self.concepts]
        if len(maps) > 1:
            # A figure and its background, or the colours of a pattern, lie in neighbouring cells, not in the same ones.
            maps = [ndimage.maximum_filter(plane, 3, mode="nearest") for plane in maps]
        return np.min(maps, axis=0) * np.float32(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A concept that adds a little to a synthetic unit's activation. A correct description of the unit does not name it."""

    concept: Concept
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """A synthetic unit whose activation map is computed from evidence maps, which tell where an image shows a concept.

    A slot holds concepts that must occur together. In each cell of the map, only the slot with the strongest evidence
    counts. This evidence is averaged over neighbouring cells (`pooling`) and raised to the power `exponent`. Then a
    little evidence for another concept (`leak`) is added, noise is applied, and the result is multiplied by `gain`.
    """

    slots: tuple[Slot, ...]
    pooling: int = 1
    """Side of the square of cells over which an evidence map is averaged."""
    exponent: float = 1.0
    gain: float = 1.0
    noise: float = 0.0
    """Standard deviation of the additive noise as a share of the gain; that of the proportional noise is three
    times as large."""
    leak: Leak | None = None
    key: str = ""
    """A text that seeds the noise together with the digest of the image."""

    @property
    def truth(self) -> tuple[tuple[str, ...], ...]:
        """What activates the unit: one or more slots, each given by the names of its concepts.

        The concepts of a slot must occur together. Each slot alone activates the unit.
        """
        return tuple(slot.names for slot in self.slots)

    def respond(self, lookup: EvidenceLookup, digest: str) -> EvidenceMap:
        """Returns the activation map for an image, shape (GRID, GRID), float32.

        Args:
            lookup: Returns the evidence map of a concept in the image.
            digest: The digest of the image, which seeds the noise.
        """
        evidence = np.max([slot.evidence(lookup) for slot in self.slots], axis=0)
        if self.pooling > 1:
            evidence = ndimage.uniform_filter(evidence, self.pooling, mode="nearest")
        evidence = np.clip(evidence, 0, 1) ** np.float32(self.exponent)
        if self.leak is not None:
            evidence = evidence + np.float32(self.leak.weight) * lookup(self.leak.concept)
        if self.noise:
            key = hashlib.sha256(f"{self.key} {digest}".encode()).digest()
            proportional, additive = np.random.default_rng(int.from_bytes(key[:8])).normal(0, self.noise, 2)
            evidence = evidence * (1 + 3 * proportional) + additive
        return (evidence * self.gain).astype(np.float32)
