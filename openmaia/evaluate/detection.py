"""Detection on real pictures: does the unit respond where a judge sees what the labels name?

The sample of a unit is stratified by its activation, since most pictures excite no unit; each picture then counts with
the number of those that it stands for.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.evaluate.judges import Judge, Verdict
from openmaia.evaluate.masks import Locator, mask_iou
from openmaia.evaluate.statistics import Values
from openmaia.images import Picture
from openmaia.services import Activation

Marks = npt.NDArray[np.bool_]

STRATA = (0.0, 0.5, 0.8, 0.95, 1.0)
"""Bounds of the strata, as shares of the pictures in the order of their activation."""

ACTIVE = 0.95
"""A picture counts as active where it lies above this share of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """at: places in the list of pictures. weight: how many pictures each stands for."""

    at: tuple[int, ...]
    weight: Values


def sample(activations: Values, digests: Sequence[str], count: int) -> Sampled:
    """The same number from each stratum, drawn by the pictures' digests; a small stratum whole."""
    order = np.lexsort((np.array(digests), activations))
    bounds = [round(share * len(order)) for share in STRATA]
    chosen: list[int] = []
    weight: list[float] = []
    for low, high in pairwise(bounds):
        within: list[int] = order[low:high].tolist()
        members = sorted(within, key=lambda at: hashlib.sha256(digests[at].encode()).digest())
        taken = sorted(members[: max(count // (len(STRATA) - 1), 1)])
        chosen += taken
        weight += [len(members) / max(len(taken), 1)] * len(taken)
    return Sampled(at=tuple(chosen), weight=np.array(weight))


def average_precision(marks: Marks, activations: Values, weight: Values) -> float | None:
    """Area under the precision-recall curve as a sum of steps (sklearn.metrics.average_precision_score with sample
    weights). None where nothing is marked."""
    if not (weight * marks).sum() > 0:
        return None
    order = np.argsort(-activations, kind="stable")
    hit, seen = np.cumsum((weight * marks)[order]), np.cumsum(weight[order])
    # Equal activations are one step.
    last = np.append(np.flatnonzero(np.diff(activations[order])), len(order) - 1)
    recall, precision = hit[last] / hit[-1], hit[last] / seen[last]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def f1(marks: Marks, active: Marks, weight: Values) -> float | None:
    """Harmonic mean of precision and recall (sklearn.metrics.f1_score with sample weights). None where nothing is marked
    and nothing active."""
    both, either = (weight * (marks & active)).sum(), (weight * marks).sum() + (weight * active).sum()
    return float(2 * both / either) if either > 0 else None


def correlation(marks: Marks, activations: Values, weight: Values) -> float | None:
    """Pearson's, weighted (numpy.cov with aweights). None where either is constant."""
    centred = [values - np.average(values, weights=weight) for values in (marks.astype(np.float64), activations)]
    spread = np.sqrt([np.average(one**2, weights=weight) for one in centred])
    if not (spread > 1e-12).all():
        return None
    return float(np.average(centred[0] * centred[1], weights=weight) / spread.prod())


def graded_iou(marks: Marks, activations: Values, weight: Values) -> float | None:
    """Intersection over union of the marked pictures and of activations as degrees of membership: the sum of the lesser
    over the sum of the greater (Ruzicka's similarity). Activations run from 0 at the median to 1 at the highest."""
    low, high = weighted_quantile(activations, weight, 0.5), float(activations.max(initial=0.0))
    if not high > low:
        return None
    degree = np.clip((activations - low) / (high - low), 0, 1)
    return float((weight * np.minimum(marks, degree)).sum() / (weight * np.maximum(marks, degree)).sum())


def weighted_quantile(values: Values, weight: Values, share: float) -> float:
    """The least value with at least this share of the weight at or below it."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, share * total[-1])])


def union(verdicts: Sequence[Sequence[Verdict]]) -> list[Verdict]:
    """Whether any label is shown. Unknown where none is, and one is unknown."""
    return [True if any(row) else None if any(one is None for one in row) else False for row in verdicts]


def metrics(marks: Marks, activations: Values, weight: Values) -> dict[str, float | None]:
    """weight: of each picture. Activity is decided within the sample, by its weights."""
    active = activations > weighted_quantile(activations, weight, ACTIVE - 1e-9)
    if not active.any():
        active = activations >= activations.max(initial=0.0)
    return {
        "auprc": average_precision(marks, activations, weight),
        "f1": f1(marks, active, weight),
        "correlation": correlation(marks, activations, weight),
        "iou": graded_iou(marks, activations, weight),
    }


def detect(
    labels: Sequence[str],
    pictures: Sequence[Picture],
    activations: Values,
    judge: Judge,
    count: int,
    probe: Callable[[Sequence[Picture]], Sequence[Activation]] | None = None,
) -> Mapping[str, Any]:
    """activations: of the unit to the pictures, (pictures,). count: pictures to be judged. What the judge does not know is
    left out, and counted; with fewer than half known there are no scores. probe: answers with the unit's maps, asked for
    where the judge knows places too (masks.Locator), for mask_iou."""
    drawn = sample(activations, [picture.digest for picture in pictures], count)
    chosen = [pictures[at] for at in drawn.at]
    verdicts = judge.judge(chosen, labels)
    marks = union(verdicts)
    known = [at for at, mark in enumerate(marks) if mark is not None]
    found: dict[str, Any] = {
        "judge": judge.name,
        "judged": len(marks),
        "known": len(known),
        "shown": sum(mark is True for mark in marks),
        "marks": [[picture.digest, mark] for picture, mark in zip(chosen, marks, strict=True)],
    }
    if len(known) * 2 > len(marks):
        values = np.array([activations[drawn.at[at]] for at in known])
        found |= metrics(np.array([marks[at] is True for at in known]), values, drawn.weight[known])
    if probe is not None and isinstance(judge, Locator):
        found["mask_iou"] = mask_iou(chosen, judge.locate(chosen, labels), probe(chosen), drawn.weight)
    return found
