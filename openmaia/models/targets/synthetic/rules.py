"""Computes the activation of a synthetic unit from the detections of its concepts, by the rules of a preset.

The MAIA paper (its section on synthetic units and table A4) and the published MAIA code (SAMNeuron, release of October
2025) describe different units and rules. The preset `repo` follows the code, and the preset `paper` follows the paper.

| property                       | repo (code)                                 | paper (text)                          |
|--------------------------------|---------------------------------------------|---------------------------------------|
| units                          | 85 of the published MAIA data (47, 18, 20)  | 88 of table A4 (the text says 85)     |
| boxes are kept above           | 0.25                                        | 0.30                                  |
| text threshold                 | 0.30, without effect                        | 0.25, without effect                  |
| score of a box                 | truncated to two decimals                   | unchanged                             |
| `or`, both concepts present    | maximum                                     | mean                                  |
| `and`, one concept absent      | uniform(0, 0.1), two decimals, no position  | 0                                     |
| mask                           | dilated by 18 pixels (5 x 5 ellipse, 9 times) | the same                            |
| input                          | squashed to 224 x 224, Lanczos              | not stated; assumed the same          |

The numbers of units in brackets are those of the modes `mono`, `or` and `and`. The text threshold selects the words
that name a box. Each of our queries names one concept, so the threshold has no effect and is not applied. Three
properties of the published code are not reproduced in either preset. Its noise is not seeded; our noise depends on the
image and the unit alone. Its lists keep the detections of one image when the next image of a batch is processed. Its
stored `or` exemplars exceed 1, because they were computed with another formula.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from openmaia.core.services import Map

SIZE = 224
"""Pixels per side of the images that detector and segmenter receive."""

GRID = 56
"""Cells per side of the maps: SIZE / 4. SAM, too, predicts masks at a quarter of the side of its input."""

_CELL = SIZE // GRID

ConceptMask = npt.NDArray[np.bool_]

ELLIPSE = np.array([[0, 0, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], dtype=bool)

DILATIONS = 9
"""How often the masks of concepts are dilated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticRules:
    """Converts the concepts detected in an image to activations, as a preset demands."""

    units: str
    """Name of the list in units.json."""
    box_threshold: float
    truncated: bool
    """Whether scores are truncated to two decimals."""
    either: Literal["max", "mean"]
    """How an `or` unit responds if both concepts are present."""
    noise: bool
    """Whether an `and` unit responds with noise if a concept is absent. Otherwise with 0."""


PRESETS: Mapping[str, SyntheticRules] = {
    "repo": SyntheticRules(units="repo", box_threshold=0.25, truncated=True, either="max", noise=True),
    "paper": SyntheticRules(units="paper", box_threshold=0.30, truncated=False, either="mean", noise=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptDetection:
    """The detection of one concept in one image."""

    boxes: int
    """Number of boxes above the threshold."""
    activation: float
    """Their mean score, 0 if there are none."""
    mask: ConceptMask
    """Cells that the concept covers, shape (GRID, GRID)."""

    @property
    def present(self) -> bool:
        return self.boxes > 0


def activation(scores: Sequence[float], rules: SyntheticRules) -> float:
    """Returns the mean score of a concept's boxes, 0 if there are none."""
    if not scores:
        return 0.0
    counted = [_truncated(score) for score in scores] if rules.truncated else scores
    return sum(counted) / len(counted)


def _truncated(score: float) -> float:
    # Rounded first, because 100 * 0.29 is slightly less than 29.
    return math.floor(round(score * 100, 6)) / 100


def reduce_mask(mask: ConceptMask) -> ConceptMask:
    """Dilates a concept's mask of shape (SIZE, SIZE), and reduces it to (GRID, GRID).

    A cell is set if the mask covers at least half of it. If there is no such cell, the cells with the largest coverage
    are set, so that only an empty mask has an empty result.
    """
    mask = ndimage.binary_dilation(mask, ELLIPSE, iterations=DILATIONS)
    covered = mask.reshape(GRID, _CELL, GRID, _CELL).mean(axis=(1, 3))
    return (covered > 0) & (covered >= min(0.5, covered.max()))


def combine(layer: str, detections: Sequence[ConceptDetection], rules: SyntheticRules, noise_key: str) -> Map:
    """Combines the detections of a unit's concepts in an image into its activation map, float32 of shape (GRID, GRID).

    It holds the activation inside the mask of the concepts that excite the unit, and 0 outside. If an `and` unit lacks
    a concept, it is 0, or noise in a single cell if the rules demand it.

    Args:
        layer: The mode of the unit.
        noise_key: A text from which the noise is derived.
    """
    first = detections[0]
    match layer:
        case "or":
            return _either(first, detections[1], rules)
        case "and" if not (first.present and detections[1].present):
            return _noise(noise_key) if rules.noise else np.zeros((GRID, GRID), dtype=np.float32)
        case "andnot" if detections[1].present:
            return np.zeros((GRID, GRID), dtype=np.float32)
        case _:
            return _constant_map(first.mask, first.activation)


def _either(first: ConceptDetection, second: ConceptDetection, rules: SyntheticRules) -> Map:
    value = max(first.activation, second.activation)
    if rules.either == "mean" and first.present and second.present:
        value = (first.activation + second.activation) / 2
    return _constant_map(first.mask | second.mask, value)


def _constant_map(mask: ConceptMask, value: float) -> Map:
    return mask.astype(np.float32) * np.float32(value)


def _noise(key: str) -> Map:
    # The noise of the published MAIA code has no position. It needs one here, because an activation is the maximum of
    # its map.
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
    noise = np.zeros((GRID, GRID), dtype=np.float32)
    noise[tuple(random.integers(GRID, size=2))] = round(random.uniform(0, 0.1), 2)
    return noise
