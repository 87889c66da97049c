"""A target of closed-form units."""

import hashlib
from collections.abc import Mapping
from functools import cache

import numpy as np
from cachetools import LRUCache

from openmaia.core.images import EncodedImage, Pixels, whole
from openmaia.core.services import Probe, UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.models.targets.measured import MeasuredTarget
from openmaia.models.targets.responses import Response, rounded
from openmaia.offline.closed_form.family import edition, layers
from openmaia.offline.closed_form.unit import ClosedForm, EvidenceLookup
from openmaia.offline.closed_form.view import INPUT_SIDE, DetectorInput, resized

# All units are measured on the same images of the experimenter's screening.
_CACHED_IMAGES = 1000


class ClosedFormTarget(MeasuredTarget):
    """A target whose units are formulas over the pixels.

    Args:
        shuffled: Whether to replace every image by an unrelated one, as a control.
        units: By layer. None selects those of the family.
    """

    def __init__(
        self,
        name: str,
        *,
        family: str = "small",
        shuffled: bool = False,
        units: Mapping[str, tuple[ClosedForm, ...]] | None = None,
    ):
        self._name, self._family, self._shuffled = name, family, shuffled
        self.units = units or layers(family)
        self._lookups: LRUCache[str, EvidenceLookup] = LRUCache(_CACHED_IMAGES)

    def info(self) -> TargetInfo:
        truths = {layer: [(unit.key, unit.truth) for unit in units] for layer, units in self.units.items()}
        digest = hashlib.sha256(f"{edition(self._family)} {self._family} {truths}".encode()).hexdigest()
        counts = {layer: len(units) for layer, units in self.units.items()}
        return TargetInfo(name=self._name, layers=counts, digest=digest, input_size=(INPUT_SIDE, INPUT_SIDE))

    def measure(self, layer: str, image: EncodedImage) -> Response:
        # The units' noise depends on the digest of the image.
        lookup = self._lookup(image)
        return np.stack([unit.respond(lookup, image.digest) for unit in self.units[layer]])

    def _activation(self, probe: Probe) -> UnitActivation:  # measures this unit alone
        unit = self.units[probe.unit.layer][probe.unit.index]
        activations = unit.respond(self._lookup(probe.image), probe.image.digest)
        return UnitActivation(value=rounded(activations.max()), map=activations, box=whole(probe.image.pixels))

    def _lookup(self, image: EncodedImage) -> EvidenceLookup:
        # Each map is computed once, on demand.
        key = image.digest
        if key not in self._lookups:
            view = DetectorInput(_substitute(key) if self._shuffled else resized(image.pixels))
            self._lookups[key] = cache(lambda concept: concept.detector(view))
        return self._lookups[key]


def _substitute(digest: str) -> Pixels:
    # A shape or stripes in two random colours.
    random = np.random.default_rng(int(digest[:16], 16))
    ground, ink = random.integers(0, 256, (2, 3))
    rows, columns = np.mgrid[:INPUT_SIDE, :INPUT_SIDE]
    centre, radius = random.integers(70, 154, 2), random.integers(25, 60)
    masks = (
        (rows // 12) % 2 == 0,
        (columns // 12) % 2 == 0,
        np.hypot(rows - centre[0], columns - centre[1]) < radius,
        np.maximum(np.abs(rows - centre[0]), np.abs(columns - centre[1])) < radius,
    )
    return np.where(masks[random.integers(len(masks))][..., None], ink, ground).astype(np.uint8)
