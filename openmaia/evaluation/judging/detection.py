"""Detection on photographs: measures how well a unit's activations predict which images show what its labels name.

Photographs are sampled in strata of the activation, because most photographs do not activate a unit, and each is
weighted by the number that it represents. A judge marks whether it shows one of the labels, and the metrics compare
these marks with the activations.

Arguments of the metrics: `marks` (images,), whether each photograph shows a label; `activations` (images,); `active`
(images,), whether the unit is active on it; `weight` (images,), the number of photographs that each one represents.
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
"""Quantiles of the unit's activation."""

_ACTIVE = 0.95
"""A unit counts as active on images above this quantile of its activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratifiedSample:
    """A sample of photographs from several ranges of a unit's activations."""

    positions: tuple[int, ...]
    """In the list of all photographs."""
    weight: FloatArray
    """(positions,): the number of photographs that each one represents."""


def sample(activations: FloatArray, digests: Sequence[str], count: int) -> StratifiedSample:
    """Draws `count` photographs, the same number from each stratum of the activations, (photographs,).

    The choice within a stratum follows a hash of the digests. If a stratum has too few photographs, all of them are
    taken.
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
    """Returns the weighted average precision; None if no image is marked."""
    # Imported here because it takes two seconds, which commands that only read results should not spend.
    from sklearn.metrics import average_precision_score  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    if not (weight * marks).sum() > 0:
        return None
    return float(average_precision_score(marks, activations, sample_weight=weight))  # pyright: ignore[reportUnknownArgumentType]


def f1(marks: BoolArray, active: BoolArray, weight: FloatArray) -> float | None:
    """Returns the weighted F1 of `active` as a prediction of `marks`; None if no image is marked and none is active."""
    both, either = (weight * (marks & active)).sum(), (weight * marks).sum() + (weight * active).sum()
    return float(2 * both / either) if either > 0 else None


def correlation(marks: BoolArray, activations: FloatArray, weight: FloatArray) -> float | None:
    """Returns the weighted Pearson correlation of marks and activations; None if all marks or all activations are
    equal.
    """
    covariance = np.cov(np.stack([marks.astype(np.float64), activations]), aweights=weight, ddof=0)
    deviations = np.sqrt(np.diag(covariance))
    return float(covariance[0, 1] / deviations.prod()) if (deviations > 1e-12).all() else None


def graded_iou(marks: npt.NDArray[Any], activations: FloatArray, weight: FloatArray) -> float | None:
    """Returns the intersection over union of marks (of images or of pixels) and graded activations, (n,) each.

    Activations become degrees from 0 (at or below the weighted median) to 1 (at the maximum), so that no threshold has
    to be chosen. The result is Ruzicka's similarity, the weighted sum of min(mark, degree) over that of max(mark,
    degree); None if the maximum does not exceed the median.
    """
    low, high = weighted_quantile(activations, weight, 0.5), float(activations.max())
    if not high > low:
        return None
    degree = np.clip((activations - low) / (high - low), 0.0, 1.0)
    return float((weight * np.minimum(marks, degree)).sum() / (weight * np.maximum(marks, degree)).sum())


def weighted_quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """Returns the smallest value v for which all values up to v have at least the given share of the total weight."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, share * total[-1])])


def union(verdicts: Sequence[Sequence[ImageVerdict]]) -> list[ImageVerdict]:
    """Returns for each image whether it shows any of the labels: True if any verdict is, else None if any is unknown,
    else False.
    """
    return [True if any(row) else None if any(verdict is None for verdict in row) else False for row in verdicts]


def area(marks: BoolArray, activations: FloatArray, weight: FloatArray) -> float | None:
    """Returns the weighted area under the ROC curve with which activations predict marks; None if no image is marked,
    or if all are.
    """
    from sklearn.metrics import roc_auc_score  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    if not 0 < (weight * marks).sum() < weight.sum():
        return None
    return float(roc_auc_score(marks, activations, sample_weight=weight))  # pyright: ignore[reportUnknownArgumentType]


def balanced_accuracy(marks: BoolArray, active: BoolArray, weight: FloatArray) -> float | None:
    """Returns the mean of two weighted shares, of marked images among active ones and of unmarked images among the
    others; None if all or no images are active.
    """
    shares = [(weight * (marks == is_active))[active == is_active] for is_active in (True, False)]
    totals = [weight[active == is_active].sum() for is_active in (True, False)]
    if not all(totals):
        return None
    return float(np.mean([share.sum() / total for share, total in zip(shares, totals, strict=True)]))


def metrics(marks: BoolArray, activations: FloatArray, weight: FloatArray) -> dict[str, float | None]:
    """Computes all metrics. Undefined values are None.

    The unit counts as active on images above the weighted quantile _ACTIVE of its activations, or, if there are none, on
    those with the maximum.

    Returns:
        `auprc` (see `average_precision`), `f1` and `iou` (see `graded_iou`).
        `correlation`: the score of simulation (Bills et al. 2023), if the simulated activation is 1 for a marked image
        and 0 for others.
        `responsiveness`, as in FADE (Puri et al. 2025): the absolute Gini coefficient |2 AUC - 1| with which
        activations predict marks.
        `purity`, as in FADE: the average precision with which activations predict marks. If the AUC is below 0.5, the
        negative activations are used instead.
        `balanced_accuracy`: how well marks predict whether the unit is active, as in delphi's detection (Paulo et al.
        2024).
    """
    active = activations > weighted_quantile(activations, weight, _ACTIVE - 1e-9)
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
    """Measures how well a unit's activations (images,) agree with a judge that looks at a sample of `count`
    photographs.

    `probe` returns the unit's activation and map for images; it is only used with a LocatingJudge, for `mask_iou`.

    Returns:
        `judge`: the judge's name.
        `judged`, `known`, `shown`: the numbers of judged photographs, of those with a known verdict, and of those that
        show a label.
        `marks`: [digest, verdict] of each judged photograph.
        The items of `metrics` over the photographs with known verdicts, if these are more than half.
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
    """Returns the graded IoU (`graded_iou`) of the judge's masks and the unit's activation maps over the pixels of all
    images, weighted by the number of photographs that each image represents, (images,).

    Pixels that the network did not see, because the image was cropped, are left out. Maps are upsampled to the size of
    the masks. None if the layer has no maps, if all masks are empty, or if the maximum does not exceed the weighted
    median.
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
    """Returns the part of an image's mask that lies within the crop `answer.box`, with at least one row and one column."""
    width, height = image.size
    rows, columns = region.shape
    left, top, right, bottom = answer.box
    x1, x2 = (min(max(round(x / width * columns), 0), columns) for x in (left, right))
    y1, y2 = (min(max(round(y / height * rows), 0), rows) for y in (top, bottom))
    x1, y1 = min(x1, columns - 1), min(y1, rows - 1)
    return region[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)]
