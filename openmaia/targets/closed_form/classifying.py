"""Classifiers of known bias behind the same interface as a network's outputs."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from openmaia.images import Picture, Pixels
from openmaia.services import Activation, LayerProbe, Probe
from openmaia.targets.closed_form.classes import EDITION, Classifier, classifiers
from openmaia.targets.closed_form.seen import SIZE, Seen, squashed
from openmaia.targets.hooked import Response, rounded
from openmaia.units import OUTPUT, TargetInfo

REMEMBERED = 2000
"""Pictures of which all logits are kept: many agents look at the same ones."""


class ClosedFormClasses:
    """One layer, OUTPUT. Each class decides by itself: probabilities of several classes do not add up to anything."""

    def __init__(self, name: str, units: Sequence[Classifier] | None = None):
        self._name = name
        self.units = tuple(classifiers() if units is None else units)
        self._logits: OrderedDict[str, npt.NDArray[np.float64]] = OrderedDict()

    def info(self) -> TargetInfo:
        return TargetInfo(
            name=self._name,
            layers={OUTPUT: len(self.units)},
            digest=hashlib.sha256(f"{EDITION} {[unit.key for unit in self.units]}".encode()).hexdigest(),
            input_size=(SIZE, SIZE),
            classes=tuple(unit.name for unit in self.units),
        )

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return [self._answer(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [np.array([rounded(p) for p in _sigmoid(self._of(probe.picture)).tolist()]) for probe in probes]

    def look(self, pictures: Sequence[Pixels]) -> list[tuple[Pixels, Mapping[str, Response]]]:
        views = [squashed(pixels) for pixels in pictures]
        return [(view, {OUTPUT: _sigmoid(self._of(Picture.of(view))).astype(np.float32)}) for view in views]

    def _answer(self, probe: Probe) -> Activation:
        raw = float(self._of(probe.picture)[probe.unit.index])
        height, width = probe.picture.pixels.shape[:2]
        value = float(_sigmoid(np.array(raw)))
        return Activation(value=rounded(value), raw=rounded(raw), box=(0.0, 0.0, float(width), float(height)))

    def _of(self, picture: Picture) -> npt.NDArray[np.float64]:
        """(units,)"""
        key = picture.digest
        if key in self._logits:
            self._logits.move_to_end(key)
        else:
            seen = Seen(squashed(picture.pixels))
            self._logits[key] = np.array([unit.logit(seen, key) for unit in self.units])
            if len(self._logits) > REMEMBERED:
                self._logits.popitem(last=False)
        return self._logits[key]


def _sigmoid(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-logits))
