"""Closed-form units behind the same interface as a network."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from openmaia.errors import UsageError
from openmaia.images import Picture, Pixels
from openmaia.services import Activation, LayerProbe, Probe
from openmaia.targets.closed_form.concepts import Concept
from openmaia.targets.closed_form.family import EDITION, MODES, units
from openmaia.targets.closed_form.seen import SIZE, Plane, Seen, squashed
from openmaia.targets.closed_form.small import SMALL
from openmaia.targets.closed_form.unit import ClosedForm
from openmaia.targets.hooked import Response, maxima, rounded
from openmaia.units import TargetInfo

REMEMBERED = 1000
"""Pictures whose maps are kept: all units look at the same screening pictures."""


def layers(family: str) -> Mapping[str, tuple[ClosedForm, ...]]:
    """The units of a family by mode. Raises UsageError for another name."""
    match family:
        case "small":
            return SMALL
        case "development" | "held_out":
            return {mode: units(family, mode) for mode in MODES}
        case _:
            raise UsageError(f"target.family={family!r} is not known; expected small, development, held_out or biased")


class ClosedFormTarget:
    """Preprocessing as a network's, by its owner's rule: squashed to SIZE x SIZE. shuffled: every picture gets the
    answer to another one."""

    def __init__(self, name: str, *, family: str = "small", shuffled: bool = False):
        self._name, self._family, self._shuffled = name, family, shuffled
        self.units = layers(family)
        self._maps: OrderedDict[str, Callable[[Concept], Plane]] = OrderedDict()

    def info(self) -> TargetInfo:
        digest = hashlib.sha256(f"{EDITION} {self._family}".encode()).hexdigest()
        counts = {layer: len(found) for layer, found in self.units.items()}
        return TargetInfo(name=self._name, layers=counts, digest=digest, input_size=(SIZE, SIZE))

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return [self._answer(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [maxima(self._layer(probe.layer, probe.picture)) for probe in probes]

    def look(self, pictures: Sequence[Pixels]) -> list[tuple[Pixels, Mapping[str, Response]]]:
        """What is seen of pictures, and the maps of all units."""
        return [self._look(squashed(pixels)) for pixels in pictures]

    def _look(self, view: Pixels) -> tuple[Pixels, Mapping[str, Response]]:
        picture = Picture.of(view)
        return view, {layer: self._layer(layer, picture) for layer in self.units}

    def _layer(self, layer: str, picture: Picture) -> Response:
        find = self._finder(picture)
        return np.stack([unit.respond(find, picture.digest) for unit in self.units[layer]])

    def _answer(self, probe: Probe) -> Activation:
        unit = self.units[probe.unit.layer][probe.unit.index]
        small = unit.respond(self._finder(probe.picture), probe.picture.digest)
        height, width = probe.picture.pixels.shape[:2]
        return Activation(value=rounded(small.max()), map=small, box=(0.0, 0.0, float(width), float(height)))

    def _finder(self, picture: Picture) -> Callable[[Concept], Plane]:
        """Maps of concepts on one picture, each computed once, when somebody asks."""
        key = picture.digest
        if key in self._maps:
            self._maps.move_to_end(key)
        else:
            self._maps[key] = _finder(_stand_in(key) if self._shuffled else squashed(picture.pixels))
            if len(self._maps) > REMEMBERED:
                self._maps.popitem(last=False)
        return self._maps[key]


def _finder(view: Pixels) -> Callable[[Concept], Plane]:
    seen = Seen(view)
    found: dict[str, Plane] = {}

    def find(concept: Concept) -> Plane:
        if concept.name not in found:
            found[concept.name] = concept.detector(seen)
        return found[concept.name]

    return find


def _stand_in(digest: str) -> Pixels:
    """Another picture instead, drawn by the digest alone: a figure or stripes in two random colours."""
    random = np.random.default_rng(int(digest[:16], 16))
    ground, ink = random.integers(0, 256, (2, 3))
    rows, columns = np.mgrid[:SIZE, :SIZE]
    centre, radius = random.integers(70, 154, 2), random.integers(25, 60)
    figures = (
        (rows // 12) % 2 == 0,
        (columns // 12) % 2 == 0,
        np.hypot(rows - centre[0], columns - centre[1]) < radius,
        np.maximum(np.abs(rows - centre[0]), np.abs(columns - centre[1])) < radius,
    )
    return np.where(figures[random.integers(len(figures))][..., None], ink, ground).astype(np.uint8)
