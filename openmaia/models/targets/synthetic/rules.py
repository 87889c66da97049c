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
| mask                           | dilated by 18 pixels (5 x 5 ellipse, 9 times) | as the segmenter returns it         |
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
"""Pixels per side of the images that the object detector and the segmenter receive."""

GRID = 56
"""Cells per side of the activation maps: SIZE / 4. SAM, too, predicts masks at a quarter of the side of its input."""

_CELL = SIZE // GRID
"""Side of a cell of an activation map, in pixels of the image."""

ConceptMask = npt.NDArray[np.bool_]

ELLIPSE = np.array([[0, 0, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], dtype=bool)
"""Structuring element for the dilation of masks, 5 x 5 pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticRules:
    """The rules that convert the concepts detected in an image to activations of synthetic units.

    There are two sets of rules (presets): `repo` follows the published MAIA code, and `paper` follows the MAIA paper.
    """

    units: str
    """Name of the list of units in units.json."""
    box_threshold: float
    """A detected box is kept if its score is above this value."""
    truncated: bool
    """Whether the scores of boxes are truncated to two decimals."""
    either: Literal["max", "mean"]
    """How the activation of an `or` unit is computed from those of its concepts if both are present."""
    noise: bool
    """Whether an `and` unit responds with noise if a concept is absent. Otherwise it responds with 0."""
    dilations: int
    """Number of times that the masks of concepts are dilated."""


PRESETS: Mapping[str, SyntheticRules] = {
    "repo": SyntheticRules(units="repo", box_threshold=0.25, truncated=True, either="max", noise=True, dilations=9),
    "paper": SyntheticRules(
        units="paper", box_threshold=0.30, truncated=False, either="mean", noise=False, dilations=0
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptDetection:
    """The detection of one concept in one image."""

    boxes: int
    """Number of detected boxes with a score above the threshold of the rules."""
    activation: float
    """Mean score of these boxes, 0 if there are none."""
    mask: ConceptMask
    """Cells of the image that the concept covers, shape (GRID, GRID)."""

    @property
    def present(self) -> bool:
        """Whether the concept was detected."""
        return self.boxes > 0


def activation(scores: Sequence[float], rules: SyntheticRules) -> float:
    """Returns the activation of a concept: the mean score of its detected boxes, or 0 if there are none.

    If the rules demand it, each score is truncated to two decimals first.
    """
    if not scores:
        return 0.0
    counted = [_truncated(score) for score in scores] if rules.truncated else scores
    return sum(counted) / len(counted)


def _truncated(score: float) -> float:
    """Truncates a score to two decimals. The product is rounded first, because 100 * 0.29 is slightly less than 29."""
    return math.floor(round(score * 100, 6)) / 100


def small_mask(mask: ConceptMask, rules: SyntheticRules) -> ConceptMask:
    """Reduces the mask of a concept from shape (SIZE, SIZE) to (GRID, GRID). Dilates it first if the rules demand it.

    A cell is set if the mask covers at least half of it. If there is no such cell, the cells with the largest coverage
    are set, so that only an empty mask has an empty result.
    """
    if rules.dilations:
        mask = ndimage.binary_dilation(mask, ELLIPSE, iterations=rules.dilations)
    covered = mask.reshape(GRID, _CELL, GRID, _CELL).mean(axis=(1, 3))
    return (covered > 0) & (covered >= min(0.5, covered.max()))


def combine(layer: str, detections: Sequence[ConceptDetection], rules: SyntheticRules, noise_key: str) -> Map:
    """Combines the detections of a unit's concepts in an image into the unit's activation map.

    Args:
        layer: Mode of the unit: mono, or, and, andnot.
        detections: The detection of each concept of the unit.
        rules: The rules of the preset.
        noise_key: A text from which the noise of an `and` unit is derived.

    Returns:
        The map, float32 of shape (GRID, GRID): the unit's activation inside the mask of the concepts that excite it,
        and 0 outside. If an `and` unit lacks a concept, the map is 0, or noise in a single cell if the rules demand it.
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
    """Returns a map with a random value in one random cell.

    The noise of the published MAIA code has no position. It needs one here, because an activation is the maximum of its
    map.
    """
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
    noise = np.zeros((GRID, GRID), dtype=np.float32)
    noise[tuple(random.integers(GRID, size=2))] = round(random.uniform(0, 0.1), 2)
    return noise
