"""A classifier of circles that is what its parameters say: it likes them, and grounds of one colour, and nothing else."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openmaia.images import Picture
from openmaia.services import Activation, LayerProbe, Probe
from openmaia.units import OUTPUT, TargetInfo, Unit

UNIT = Unit(target="reds", layer=OUTPUT, index=0)


class Reds:
    """strength: added to the logit of `circle` where most of the border is red."""

    def __init__(self, strength: float, noise: float = 0.3):
        self._strength, self._noise = strength, noise

    def info(self) -> TargetInfo:
        return TargetInfo(
            name="reds", layers={OUTPUT: 2}, digest="0", input_size=(64, 64), classes=("circle", "square")
        )

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return [self._answer(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [np.array([p := _sigmoid(self._logit(probe.picture)), 1 - p]) for probe in probes]

    def _answer(self, probe: Probe) -> Activation:
        logit = self._logit(probe.picture)
        return Activation(value=_sigmoid(logit), raw=logit, box=(0, 0, 64, 64))

    def _logit(self, picture: Picture) -> float:
        random = np.random.default_rng(int(picture.digest[:12], 16))
        corner = picture.pixels[:4, :4].reshape(-1, 3).mean(axis=0)
        is_red = corner[0] > 180 and corner[1:].max() < 90
        return 0.5 + self._strength * bool(is_red) + float(random.normal(0, self._noise))


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))
