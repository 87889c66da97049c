"""A classifier of circles with a known bias towards red grounds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openmaia.core.images import EncodedImage
from openmaia.core.services import LayerProbe, Probe, UnitActivation
from openmaia.core.units import OUTPUT, TargetInfo, Unit

UNIT = Unit(target="circles", layer=OUTPUT, index=0)


class CircleClassifier:
    """Adds `strength` to the logit of `circle` if the corner is red, and noise."""

    def __init__(self, strength: float, noise: float = 0.3):
        self._strength, self._noise = strength, noise

    def info(self) -> TargetInfo:
        return TargetInfo(
            name="circles", layers={OUTPUT: 2}, digest="0", input_size=(64, 64), classes=("circle", "square")
        )

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        return [self._answer(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [np.array([p := _sigmoid(self._logit(probe.image)), 1 - p]) for probe in probes]

    def _answer(self, probe: Probe) -> UnitActivation:
        logit = self._logit(probe.image)
        return UnitActivation(value=_sigmoid(logit), raw=logit, box=(0, 0, 64, 64))

    def _logit(self, image: EncodedImage) -> float:
        random = np.random.default_rng(int(image.digest[:12], 16))
        corner = image.pixels[:4, :4].reshape(-1, 3).mean(axis=0)
        is_red = corner[0] > 180 and corner[1:].max() < 90
        return 0.5 + self._strength * bool(is_red) + float(random.normal(0, self._noise))


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


class TwoHeads(CircleClassifier):
    """The same, with a second head, whose answer is always surer."""

    def info(self) -> TargetInfo:
        return replace(
            super().info(), layers={OUTPUT: 4}, classes=("circle", "square", "on paper", "on a wall"), heads=(2, 2)
        )

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [np.array([*values, 0.999, 0.001]) / 2 for values in super().respond(probes)]
