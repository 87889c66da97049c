"""From detected boxes to the answer of a unit, and where the two presets differ.

The MAIA paper (its section on synthetic units and table A4) and the published code (SAMNeuron, release of October 2025)
do not describe the same units. `repo` follows the code, `paper` the text.

| what                           | repo (code)                                | paper (text)                          |
|--------------------------------|--------------------------------------------|---------------------------------------|
| units                          | 85 of the published data: 47, 18, 20       | 88 of table A4 (the text says 85)     |
| boxes are kept above           | 0.25                                       | 0.30                                  |
| text threshold                 | 0.30, without effect                       | 0.25, without effect                  |
| score of a box                 | cut off after two decimals                 | as it is                              |
| `or`, both concepts present    | maximum                                    | mean                                  |
| `and`, a concept absent        | uniform(0, 0.1), two decimals, no place    | 0                                     |
| mask                           | grown by 18 pixels (5 x 5 ellipse, 9 times)| as the segmenter draws it             |
| input                          | squashed to 224 x 224, Lanczos             | not stated; assumed the same          |

The text threshold chooses the words that name a box. Every query names one concept, so nothing depends on it and it is
not applied. Three things of the code are not followed in either preset: its noise is drawn without a seed (ours depends
on the picture and the unit alone), its lists leak from one picture of a batch into the next, and its stored `or`
exemplars exceed 1 (they were made by another formula).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from openmaia.services import Map

SIZE = 224
"""Pixels per side of what detector and segmenter see."""

GRID = 56
"""Cells per side of the maps: a quarter of the pixels, which is also the resolution at which SAM predicts masks."""

CELL = SIZE // GRID

Mask = npt.NDArray[np.bool_]

ELLIPSE = np.array([[0, 0, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], dtype=bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """box_threshold: a box is kept when its score is above it. grown: how often the ellipse dilates a mask."""

    units: str
    box_threshold: float
    truncated: bool
    either: Literal["max", "mean"]
    noise: bool
    grown: int


PRESETS: Mapping[str, Rules] = {
    "repo": Rules(units="repo", box_threshold=0.25, truncated=True, either="max", noise=True, grown=9),
    "paper": Rules(units="paper", box_threshold=0.30, truncated=False, either="mean", noise=False, grown=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One concept in one picture. boxes: how many were kept. activation: the mean of their scores, 0 without any.
    mask: (GRID, GRID), all that they cover."""

    boxes: int
    activation: float
    mask: Mask

    @property
    def present(self) -> bool:
        return self.boxes > 0


def activation(scores: Sequence[float], rules: Rules) -> float:
    """The mean of the scores of the kept boxes."""
    if not scores:
        return 0.0
    counted = [_cut_off(score) for score in scores] if rules.truncated else scores
    return sum(counted) / len(counted)


def _cut_off(score: float) -> float:
    """After two decimals, as written: 100 * 0.29 is a little less than 29."""
    return math.floor(round(score * 100, 6)) / 100


def small_mask(mask: Mask, rules: Rules) -> Mask:
    """(SIZE, SIZE) -> (GRID, GRID): grown where the rules say so, then the cells that are covered by half or more.

    What covers no cell by half still has the cell that it covers most, so that only an empty mask stays empty.
    """
    if rules.grown:
        mask = ndimage.binary_dilation(mask, ELLIPSE, iterations=rules.grown)
    covered = mask.reshape(GRID, CELL, GRID, CELL).mean(axis=(1, 3))
    return (covered > 0) & (covered >= min(0.5, covered.max()))


def combine(layer: str, found: Sequence[Found], rules: Rules, lot: str) -> Map:
    """(GRID, GRID) float32: the unit's activation inside its mask, 0 outside; the activation is the maximum.

    found: one per concept of the unit. lot: what noise depends on, in words.
    """
    match layer:
        case "or":
            return _either(found[0], found[1], rules)
        case "and" if not (found[0].present and found[1].present):
            return _noise(lot) if rules.noise else np.zeros((GRID, GRID), dtype=np.float32)
        case _:
            return _drawn(found[0].mask, found[0].activation)


def _either(one: Found, other: Found, rules: Rules) -> Map:
    value = max(one.activation, other.activation)
    if rules.either == "mean" and one.present and other.present:
        value = (one.activation + other.activation) / 2
    return _drawn(one.mask | other.mask, value)


def _drawn(mask: Mask, value: float) -> Map:
    return mask.astype(np.float32) * np.float32(value)


def _noise(lot: str) -> Map:
    """It shows nothing: a single cell, drawn like the value, carries it, because an activation is the maximum of its
    map, here as in a network."""
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(lot.encode()).digest()[:8], "big"))
    noise = np.zeros((GRID, GRID), dtype=np.float32)
    noise[tuple(random.integers(GRID, size=2))] = round(random.uniform(0, 0.1), 2)
    return noise
