"""A target of closed-form units."""

import hashlib
from collections.abc import Mapping
from functools import cache

import numpy as np
from cachetools import LRUCache

from openmaia.core.images import EncodedImage, whole
from openmaia.core.services import Probe, UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.models.targets.measured import MeasuredTarget
from openmaia.models.targets.responses import Response, rounded
from openmaia.offline.closed_form.family import EDITION, UNITS
from openmaia.offline.closed_form.unit import ClosedForm, EvidenceLookup
from openmaia.offline.closed_form.view import INPUT_SIDE, DetectorInput, resized

# All units are measured on the same images of the experimenter's screening.
_CACHED_IMAGES = 1000


class ClosedFormTarget(MeasuredTarget):
    """A target whose units are formulas over the pixels.

    Args:
        units: By layer. None selects those for tests.
    """

    def __init__(
        self,
        name: str,
        *,
        units: Mapping[str, tuple[ClosedForm, ...]] | None = None,
    ):
        self._name = name
        self.units = units or UNITS
        self._lookups: LRUCache[str, EvidenceLookup] = LRUCache(_CACHED_IMAGES)

    def info(self) -> TargetInfo:
        truths = {layer: [(unit.key, unit.truth) for unit in units] for layer, units in self.units.items()}
        digest = hashlib.sha256(f"{EDITION} small {truths}".encode()).hexdigest()
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
            view = DetectorInput(resized(image.pixels))
            self._lookups[key] = cache(lambda concept: concept.detector(view))
        return self._lookups[key]
