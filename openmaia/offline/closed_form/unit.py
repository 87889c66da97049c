"""A closed-form unit, whose activation is a formula over the evidence for concepts in an image.

Like the activations of networks, those of closed-form units are graded and noisy. One part of the noise is proportional
to the activation, the other is additive. It depends on the digest of the image and on the unit's key.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from openmaia.offline.closed_form.concepts import Concept
from openmaia.offline.closed_form.view import EvidenceMap

EvidenceLookup = Callable[[Concept], EvidenceMap]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Concepts that must occur together at about the same place to activate a unit."""

    concepts: tuple[Concept, ...]
    weight: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(concept.name for concept in self.concepts)

    def evidence(self, lookup: EvidenceLookup) -> EvidenceMap:
        """Returns the smallest evidence for any of the concepts in each cell, multiplied by the weight."""
        maps = [lookup(concept) for concept in self.concepts]
        if len(maps) > 1:
            # A figure and its background, or the colours of a pattern, lie in neighbouring cells, not in the same ones.
            maps = [ndimage.maximum_filter(plane, 3, mode="nearest") for plane in maps]
        return np.min(maps, axis=0) * np.float32(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A concept that adds a little to the activation. A correct description does not name it."""

    concept: Concept
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """A unit whose activation map is computed from evidence maps.

    In each cell only the slot with the strongest evidence counts. This evidence is averaged over neighbouring cells
    (`pooling`) and raised to the power `exponent`. Then the leak is added, noise is applied, and the result is
    multiplied by `gain`.
    """

    slots: tuple[Slot, ...]
    pooling: int = 1
    """Side of the square of cells."""
    exponent: float = 1.0
    gain: float = 1.0
    noise: float = 0.0
    """Standard deviation of the additive noise as a share of the gain; that of the proportional noise is three times as
    large."""
    leak: Leak | None = None
    key: str = ""
    """Seeds the noise together with the digest of the image."""

    @property
    def truth(self) -> tuple[tuple[str, ...], ...]:
        """The names of the concepts, by slot."""
        return tuple(slot.names for slot in self.slots)

    def respond(self, lookup: EvidenceLookup, digest: str) -> EvidenceMap:
        """Returns the activation map, shape (GRID_SIDE, GRID_SIDE), float32. `digest` is that of the image."""
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
