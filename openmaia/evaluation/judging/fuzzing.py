"""Fuzzing on photographs: do labels fit the part of a photograph that excites a unit, and not another part?

The protocol is that of delphi (Paulo et al. 2024), where a language model judges whether the words that are marked in a
text are those that a description names. Here a judge sees each part alone, because with the rest of the photograph in
view it might answer for the whole.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from openmaia.core.images import EncodedImage, Pixels, ViewBox, upsample
from openmaia.core.services import UnitActivation
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.judging.detection import balanced_accuracy, union
from openmaia.evaluation.judging.judges import Judge

CELLS = 20
"""The network's view of a photograph is divided into CELLS x CELLS cells."""

SIDE = 8
"""Side of a part in cells, so that a part is 16 % of the view."""

_ACTIVE = 0.8
"""Photographs above this quantile of the activations excite the unit."""

OVERLAP = 0.25
"""Share of their area that two parts may have in common, because an exciting part in the very middle of a view leaves
no room for another part that does not touch it."""


def fuzz(
    labels: Sequence[str],
    images: Sequence[EncodedImage],
    activations: FloatArray,
    judge: Judge,
    count: int,
    probe: Callable[[Sequence[EncodedImage]], Sequence[UnitActivation]],
) -> Mapping[str, Any]:
    """Asks a judge about two parts of each of the photographs with the highest activations (images,), at most `count`
    parts: the one that excites the unit most, and another one. The labels fit if the first shows them and the second
    does not.

    Returns:
        `fuzzed`: the number of parts with a known verdict.
        `fuzzing`: the mean of the share of exciting parts that show a label, and the share of other parts that show
        none; 0.5 is chance. Left out if at least half of the verdicts are unknown, or one kind has no known verdict.
        Empty if no photograph excites the unit more than others, or the maps are constant or missing.
    """
    ranked: list[int] = np.argsort(-activations, kind="stable")[: count // 2].tolist()
    bound = float(np.quantile(activations, _ACTIVE))
    chosen = [images[row] for row in ranked if activations[row] > bound]
    if not chosen:
        return {}
    pairs = [pair for image, answer in zip(chosen, probe(chosen), strict=True) if (pair := parts(image, answer))]
    if not pairs:
        return {}
    verdicts = union(judge.judge([each for pair in pairs for each in pair], labels))
    is_known = np.array([verdict is not None for verdict in verdicts])
    result: dict[str, Any] = {"fuzzed": int(is_known.sum())}
    if result["fuzzed"] * 2 <= len(verdicts):
        return result
    marks = np.array([verdict is True for verdict in verdicts])[is_known]
    is_exciting = np.tile([True, False], len(pairs))[is_known]
    accuracy = balanced_accuracy(marks, is_exciting, np.ones(len(marks)))
    return result if accuracy is None else result | {"fuzzing": accuracy}


def parts(image: EncodedImage, answer: UnitActivation) -> tuple[EncodedImage, EncodedImage] | None:
    """Returns the part of an image with the highest mean response, and another part of the same size.

    The other part is pseudo-random (seeded by the image's digest) among those that overlap the first by at most OVERLAP
    and whose mean response is at most the median of all parts. None if there is none, or if the layer has no maps.
    """
    if answer.map is None:
        return None
    cells = upsample(answer.map, CELLS, CELLS).astype(np.float64)
    means: FloatArray = np.lib.stride_tricks.sliding_window_view(cells, (SIDE, SIDE)).mean(axis=(2, 3))
    row, column = divmod(int(means.argmax()), means.shape[1])
    bound = min(float(np.median(means)), float(np.nextafter(means.max(), -np.inf)))
    quiet = [
        (y, x)
        for y, x in np.ndindex(CELLS - SIDE + 1, CELLS - SIDE + 1)
        if means[y, x] <= bound and max(SIDE - abs(y - row), 0) * max(SIDE - abs(x - column), 0) <= OVERLAP * SIDE**2
    ]
    if not quiet:
        return None
    chosen = int(np.random.default_rng(int(image.digest[:16], 16)).integers(len(quiet)))
    both = part(image, answer.box, row, column), part(image, answer.box, *quiet[chosen])
    return EncodedImage.of(both[0], [image.digest]), EncodedImage.of(both[1], [image.digest])


def part(image: EncodedImage, box: ViewBox, row: int, column: int) -> Pixels:
    """Returns the pixels of a part, enlarged until its longer side is as long as that of the image. `row` and `column`
    count cells from the top left of the network's view `box`.
    """
    left, top = max(box[0], 0.0), max(box[1], 0.0)
    width, height = min(box[2], image.size[0]) - left, min(box[3], image.size[1]) - top
    x1, x2 = (int(left + width * cell / CELLS) for cell in (column, column + SIDE))
    y1, y2 = (int(top + height * cell / CELLS) for cell in (row, row + SIDE))
    cropped = image.pil().crop((x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)))
    factor = max(image.size) / max(cropped.size)
    width, height = (max(round(side * factor), 1) for side in cropped.size)
    return np.asarray(cropped.resize((width, height), Image.Resampling.BICUBIC))
