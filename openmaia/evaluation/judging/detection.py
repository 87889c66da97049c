"""Detection on photographs: measures how well a unit's activations predict which images show what its labels name.

The photographs of a unit are sampled in strata of its activation, because most photographs do not activate a unit. Each
sampled photograph is weighted by the number of photographs that it represents. A judge then marks whether it shows one
of the labels, and the metrics compare these marks with the activations.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.core.images import EncodedImage, upsample
from openmaia.core.services import UnitActivation
from openmaia.evaluation.analysis.statistics import CHANCE, FloatArray
from openmaia.evaluation.judging.judges import ImageVerdict, Judge, LocatingJudge, Region

BoolArray = npt.NDArray[np.bool_]

STRATA = (0.0, 0.5, 0.8, 0.95, 1.0)
"""Bounds of the strata of photographs, as quantiles of the unit's activation."""

ACTIVE = 0.95
"""A unit counts as active on images above this quantile of its activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratifiedSample:
    """A sample of photographs for one unit, drawn from several ranges of its activations, with sampling weights."""

    positions: tuple[int, ...]
    """Positions of the sample in the list of all photographs."""
    weight: FloatArray
    """(positions,): the number of photographs that each sampled photograph represents."""


def sample(activations: FloatArray, digests: Sequence[str], count: int) -> StratifiedSample:
    """Draws a stratified sample of photographs, with the same number from each stratum.

    A stratum consists of the photographs whose activations lie between two quantiles. STRATA lists these quantiles. The
    choice within a stratum is pseudo-random: it follows a hash of the digests. If a stratum has too few photographs,
    all of them are taken.

    Args:
        activations: The unit's activation on each photograph, (photographs,).
        digests: The digest of each photograph.
        count: The number of photographs to sample from all strata together.
    """
    order = np.lexsort((np.array(digests), activations))
    bounds = [round(share * len(order)) for share in STRATA]
    positions: list[int] = []
    weight: list[float] = []
    for low, high in pairwise(bounds):
        stratum: list[int] = order[low:high].tolist()
        stratum.sort(key=lambda position: hashlib.sha256(digests[position].encode()).digest())
        taken = sorted(stratum[: max(count // (len(STRATA) - 1), 1)])
        positions += taken
        weight += [len(stratum) / max(len(taken), 1)] * len(taken)
    return StratifiedSample(positions=tuple(positions), weight=np.array(weight))


def average_precision(marks: BoolArray, activations: FloatArray, weight: FloatArray) -> float | None:
    """Returns the weighted average precision with which activations predict marks; None if no image is marked.

    Args:
        marks: Whether each photograph shows a label, (images,).
        activations: The unit's activation on each photograph, (images,).
        weight: The number of photographs that each one represents, (images,).
    """
    # Imported here because it takes two seconds, which commands that only read results should not spend.
    from sklearn.metrics import average_precision_score  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    if not (weight * marks).sum() > 0:
        return None
    return float(average_precision_score(marks, activations, sample_weight=weight))  # pyright: ignore[reportUnknownArgumentType]


def f1(marks: BoolArray, active: BoolArray, weight: FloatArray) -> float | None:
    """Returns the weighted F1 of `active` (the unit is active) as a prediction of `marks` (the image shows a label).

    Each image counts `weight` times. F1 is None if no image is marked and none is active.
    """
    both, either = (weight * (marks & active)).sum(), (weight * marks).sum() + (weight * active).sum()
    return float(2 * both / either) if either > 0 else None


def correlation(marks: BoolArray, activations: FloatArray, weight: FloatArray) -> float | None:
    """Returns the weighted Pearson correlation of marks (the image shows a label) and activations.

    Each image counts `weight` times. The result is None if all marks or all activations are equal.
    """
    covariance = np.cov(np.stack([marks.astype(np.float64), activations]), aweights=weight, ddof=0)
    deviations = np.sqrt(np.diag(covariance))
    return float(covariance[0, 1] / deviations.prod()) if (deviations > 1e-12).all() else None


def graded_iou(marks: npt.NDArray[Any], activations: FloatArray, weight: FloatArray) -> float | None:
    """Returns the intersection over union of marks (of images or of pixels) and graded activations.

    Activations become degrees from 0 (at or below the weighted median) to 1 (at the maximum), so that no threshold has
    to be chosen. The result is Ruzicka's similarity: the weighted sum of min(mark, degree) divided by the weighted sum
    of max(mark, degree).

    Args:
        marks: 1 or True for images or pixels that show a label, otherwise 0, (n,).
        activations: The unit's activation on each image or at each pixel, (n,).
        weight: The weight of each image or pixel, (n,).

    Returns:
        The similarity, or None if the maximum activation does not exceed the weighted median.
    """
    low, high = weighted_quantile(activations, weight, 0.5), float(activations.max())
    if not high > low:
        return None
    degree = np.clip((activations - low) / (high - low), 0.0, 1.0)
    return float((weight * np.minimum(marks, degree)).sum() / (weight * np.maximum(marks, degree)).sum())


def weighted_quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """Returns the weighted quantile of values.

    It is the smallest value v for which all values up to v together have at least the given share of the total weight.

    Args:
        values: The values, (n,).
        weight: The weight of each value, (n,).
        share: The share of the total weight, from 0 to 1.
    """
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, share * total[-1])])


def union(verdicts: Sequence[Sequence[ImageVerdict]]) -> list[ImageVerdict]:
    """Returns for each image one verdict: whether it shows any of the labels.

    Args:
        verdicts: For each image one verdict per label, as `Judge.judge` returns them.

    Returns:
        For each image True if any of its verdicts is True, else None (unknown) if any is None, else False.
    """
    return [True if any(row) else None if any(verdict is None for verdict in row) else False for row in verdicts]


def area(marks: BoolArray, activations: FloatArray, weight: FloatArray) -> float | None:
    """Returns the weighted area under the ROC curve with which activations predict marks (the image shows a label).

    Each image counts `weight` times. The area is None if no image is marked, or if all are.
    """
    from sklearn.metrics import roc_auc_score  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    if not 0 < (weight * marks).sum() < weight.sum():
        return None
    return float(roc_auc_score(marks, activations, sample_weight=weight))  # pyright: ignore[reportUnknownArgumentType]


def balanced_accuracy(marks: BoolArray, active: BoolArray, weight: FloatArray) -> float | None:
    """Returns the balanced accuracy of `marks` (the image shows a label) as a prediction of `active`.

    It is the mean of two shares: the share of marked images among those on which the unit is active, and the share of
    unmarked images among the others. Each image counts `weight` times. The result is None if the unit is active on all
    or on no images.
    """
    shares = [(weight * (marks == is_active))[active == is_active] for is_active in (True, False)]
    totals = [weight[active == is_active].sum() for is_active in (True, False)]
    if not all(totals):
        return None
    return float(np.mean([share.sum() / total for share, total in zip(shares, totals, strict=True)]))


def metrics(marks: BoolArray, activations: FloatArray, weight: FloatArray) -> dict[str, float | None]:
    """Measures how well a unit's activations predict which images are marked as showing a label, and the reverse.

    The unit counts as active on images above the weighted quantile ACTIVE of its activations. If there are no such
    images, it counts as active on those with the maximum activation. Each image counts `weight` times.

    Returns:
        `auprc` (see `average_precision`), `f1` and `iou` (see `graded_iou`).
        `correlation`: the score of simulation (Bills et al. 2023), if the simulated activation is 1 for a marked image and
        0 for others.
        `responsiveness`, as in FADE (Puri et al. 2025): the absolute Gini coefficient |2 AUC - 1| with which
        activations predict marks.
        `purity`, as in FADE: the average precision with which activations predict marks. If the AUC is below 0.5, the
        negative activations are used instead.
        `balanced_accuracy`: how well marks predict whether the unit is active, as in delphi's detection (Paulo et al.
        2024).
        Undefined values are None.
    """
    active = activations > weighted_quantile(activations, weight, ACTIVE - 1e-9)
    if not active.any():
        active = activations >= activations.max()
    roc = area(marks, activations, weight)
    return {
        "responsiveness": None if roc is None else abs(2 * roc - 1),
        "purity": None
        if roc is None
        else average_precision(marks, activations if roc >= CHANCE else -activations, weight),
        "balanced_accuracy": balanced_accuracy(marks, active, weight),
        "auprc": average_precision(marks, activations, weight),
        "f1": f1(marks, active, weight),
        "correlation": correlation(marks, activations, weight),
        "iou": graded_iou(marks, activations, weight),
    }


def detect(
    labels: Sequence[str],
    images: Sequence[EncodedImage],
    activations: FloatArray,
    judge: Judge,
    count: int,
    probe: Callable[[Sequence[EncodedImage]], Sequence[UnitActivation]] | None = None,
) -> Mapping[str, Any]:
    """Measures how well a unit's activations agree with a judge that looks at a sample of the photographs.

    The judge decides whether a photograph shows what the labels of the unit's description name.

    Args:
        labels: The labels of the unit's description.
        images: The photographs.
        activations: The unit's activation on each photograph, (images,).
        judge: Decides which photographs show a label.
        count: How many photographs are judged.
        probe: Returns the unit's activation and activation map for each given image. Only used if the judge is a
            LocatingJudge, which also finds where in an image a label is visible.

    Returns:
        `judge`: the judge's name.
        `judged`: the number of judged photographs.
        `known`: the number of judged photographs whose verdict is known (not None).
        `shown`: the number of judged photographs that show a label.
        `marks`: [digest, verdict] of each judged photograph.
        The items of `metrics`, such as `auprc`, over the photographs with known verdicts. They are left out if at most
        half of the verdicts are known.
        `mask_iou`: how much the judge's masks and the unit's activation maps overlap. It is left out without `probe`,
        or if the judge is no LocatingJudge.
    """
    chosen = sample(activations, [image.digest for image in images], count)
    judged = [images[position] for position in chosen.positions]
    marks = union(judge.judge(judged, labels))
    known = [n for n, mark in enumerate(marks) if mark is not None]
    result: dict[str, Any] = {
        "judge": judge.name,
        "judged": len(marks),
        "known": len(known),
        "shown": sum(mark is True for mark in marks),
        "marks": [[image.digest, mark] for image, mark in zip(judged, marks, strict=True)],
    }
    if len(known) * 2 > len(marks):
        values = np.array([activations[chosen.positions[n]] for n in known])
        result |= metrics(np.array([marks[n] is True for n in known]), values, chosen.weight[known])
    if probe is not None and isinstance(judge, LocatingJudge):
        result["mask_iou"] = mask_iou(judged, judge.locate(judged, labels), probe(judged), chosen.weight)
    return result


def mask_iou(
    images: Sequence[EncodedImage], regions: Sequence[Region], answers: Sequence[UnitActivation], weight: FloatArray
) -> float | None:
    """Returns the graded IoU of the judge's masks and the unit's activation maps over the pixels of all images.

    An activation counts by its size and is not compared with a threshold (see `graded_iou`). Pixels that the network
    did not see, because the image was cropped, are left out.

    Args:
        images: The judged images.
        regions: For each image the mask in which the judge sees any of the labels.
        answers: The unit's activations with maps, which are upsampled to the size of the masks.
        weight: The sampling weight of each image: the number of photographs of the dataset that it represents,
            (images,).

    Returns:
        The IoU. None if the layer has no maps, if all masks are empty, or if the maximum activation over these pixels
        does not exceed the weighted median.
    """
    inside: list[FloatArray] = []
    values: list[FloatArray] = []
    weights: list[FloatArray] = []
    for image, region, answer, each in zip(images, regions, answers, weight, strict=True):
        if answer.map is None:
            return None
        seen = seen_part(image, region, answer)
        inside.append(seen.ravel().astype(np.float64))
        values.append(upsample(answer.map, *seen.shape).astype(np.float64).ravel())
        weights.append(np.full(seen.size, each / seen.size))
    if not any(part.any() for part in inside):
        return None
    return graded_iou(np.concatenate(inside), np.concatenate(values), np.concatenate(weights))


def seen_part(image: EncodedImage, region: Region, answer: UnitActivation) -> Region:
    """Returns the part of an image's mask (`region`) that lies within the crop `answer.box`, the network's input.

    It has at least one row and one column.
    """
    width, height = image.size
    rows, columns = region.shape
    left, top, right, bottom = answer.box
    x1, x2 = (min(max(round(x / width * columns), 0), columns) for x in (left, right))
    y1, y2 = (min(max(round(y / height * rows), 0), rows) for y in (top, bottom))
    x1, y1 = min(x1, columns - 1), min(y1, rows - 1)
    return region[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)]
