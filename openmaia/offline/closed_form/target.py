"""A target of closed-form units."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from openmaia.core.images import EncodedImage, Pixels, ViewBox, whole
from openmaia.core.services import LayerProbe, Probe, UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.models.targets.responses import Response, maxima, rounded
from openmaia.offline.closed_form.family import edition, layers
from openmaia.offline.closed_form.unit import ClosedForm, EvidenceLookup
from openmaia.offline.closed_form.view import INPUT_SIDE, DetectorInput, resized

if TYPE_CHECKING:
    import torch

# All units are measured on the same images of the experimenter's screening.
_CACHED_IMAGES = 1000


class ClosedFormTarget:
    """A target whose units are formulas over the pixels.

    Args:
        shuffled: Whether to replace every image by an unrelated one, as a control.
        units: By layer. None selects those of the family.
    """

    batch = 1

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

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        return [self._activation(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [maxima(self._layer(probe.layer, probe.image)) for probe in probes]

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        """Returns the image unchanged, because the units' noise depends on its digest."""
        return pixels, whole(pixels)

    def responses(self, views: Sequence[Pixels]) -> "dict[str, torch.Tensor]":
        """Returns activation maps, shape (images, units, h, w), by layer."""
        # Here, because processes that only probe the target need no PyTorch.
        import torch

        images = [EncodedImage.of(pixels) for pixels in views]
        return {
            layer: torch.from_numpy(np.stack([self._layer(layer, image) for image in images])) for layer in self.units
        }

    def _layer(self, layer: str, image: EncodedImage) -> Response:
        lookup = self._lookup(image)
        return np.stack([unit.respond(lookup, image.digest) for unit in self.units[layer]])

    def _activation(self, probe: Probe) -> UnitActivation:
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
