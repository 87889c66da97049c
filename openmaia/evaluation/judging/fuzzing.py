"""Fuzzing on photographs: do labels fit the part of a photograph that excites a unit, and not another part?

The protocol is that of delphi (Paulo et al. 2024), where a language model judges whether the words that are marked in a
text are those that a description names. Here a judge looks at parts of photographs. It sees each part alone, because
with the rest of the photograph in view it might answer for the whole.
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

ACTIVE = 0.8
"""A unit counts as excited by photographs above this quantile of its activations."""

OVERLAP = 0.25
"""The two parts of a photograph share at most this share of their area, because an exciting part in the very middle of a
view leaves no room for another part that does not touch it."""


def fuzz(
    labels: Sequence[str],
    images: Sequence[EncodedImage],
    activations: FloatArray,
    judge: Judge,
    count: int,
    probe: Callable[[Sequence[EncodedImage]], Sequence[UnitActivation]],
) -> Mapping[str, Any]:
    """Asks a judge whether parts of photographs show what the labels of a unit name.

    The photographs with the highest activations, above the quantile ACTIVE, are chosen. Two parts of each are judged:
    the part that excites the unit most, and another part. The labels fit if they are shown by the first and not by the
    second.

    Args:
        labels: The labels of the unit's description.
        images: The photographs from which the most exciting ones are chosen.
        activations: The unit's activation on each photograph, shape (images,).
        judge: Decides which parts show a label.
        count: Largest number of parts that are judged.
        probe: Returns the unit's activation and activation map for each given image.

    Returns:
        `fuzzed`: the number of parts with a known verdict (not None).
        `fuzzing`: the mean of two shares: the share of exciting parts that show a label, and the share of other parts
        that show none. 0.5 is chance. It is left out if at least half of the verdicts are unknown, or if no exciting
        part or no other part has a known verdict.
        The result is empty if there are no parts, because no photograph excites the unit more than others, or because
        the maps are constant or missing.
    """
    ranked: list[int] = np.argsort(-activations, kind="stable")[: count // 2].tolist()
    bound = float(np.quantile(activations, ACTIVE))
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
    """Returns the part of an image with the highest mean response of a unit, and another part of the same size.

    The other part is chosen pseudo-randomly, seeded by the image's digest. Candidates are parts that overlap the first
    one by at most OVERLAP and whose mean response is at most the median of all parts.

    Args:
        image: The image.
        answer: The unit's activation map, and the part of the image that the network sees.

    Returns:
        Both parts. Each names the image as its source (`EncodedImage.sources`). None if the layer has no maps, or if
        there is no candidate for the other part, for example because the map is constant.
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
    """Returns the pixels of one part of an image, enlarged until its longer side is as long as that of the image.

    The network's view of the image is divided into CELLS x CELLS cells. A part consists of SIDE x SIDE cells.

    Args:
        image: The image.
        box: The network's view, the area of the image that the network sees: left, top, right, bottom in pixels.
        row: The first row of the part, in cells from the top of the view.
        column: The first column of the part, in cells from the left of the view.
    """
    left, top = max(box[0], 0.0), max(box[1], 0.0)
    width, height = min(box[2], image.size[0]) - left, min(box[3], image.size[1]) - top
    x1, x2 = (int(left + width * cell / CELLS) for cell in (column, column + SIDE))
    y1, y2 = (int(top + height * cell / CELLS) for cell in (row, row + SIDE))
    cropped = image.pil().crop((x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)))
    factor = max(image.size) / max(cropped.size)
    width, height = (max(round(side * factor), 1) for side in cropped.size)
    return np.asarray(cropped.resize((width, height), Image.Resampling.BICUBIC))
