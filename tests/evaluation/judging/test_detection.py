"""Detection on photographs: weighted metrics against scikit-learn and NumPy, the stratified sample, and mask IoU by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn import metrics

from openmaia.core.images import EncodedImage
from openmaia.core.services import UnitActivation
from openmaia.evaluation.judging.detection import (
    average_precision,
    balanced_accuracy,
    correlation,
    detect,
    f1,
    graded_iou,
    mask_iou,
    sample,
    seen_part,
    union,
    weighted_quantile,
)
from openmaia.evaluation.judging.detection import metrics as all_metrics
from openmaia.evaluation.judging.judges import ImageVerdict, Region
from tests.helpers.samples import noise

# -- metrics -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_weighted_metrics_equal_libraries(seed: int):
    random = np.random.default_rng(seed)
    activations = random.normal(0, 1, 40).round(1)
    marks, weight, active = activations + random.normal(0, 1, 40) > 1, random.uniform(0.5, 4, 40), activations > 0.5
    table = np.cov(np.stack([marks.astype(float), activations]), aweights=weight)
    expected = metrics.average_precision_score(marks, activations, sample_weight=weight)
    assert average_precision(marks, activations, weight) == pytest.approx(expected)
    assert f1(marks, active, weight) == pytest.approx(metrics.f1_score(marks, active, sample_weight=weight))
    assert correlation(marks, activations, weight) == pytest.approx(table[0, 1] / np.sqrt(table[0, 0] * table[1, 1]))


def test_graded_iou_by_hand():
    """Median 0, maximum 4: degrees 0, 0, 0.5, 1; marked are the first and the last. (0 + 1) over (1 + 0 + 0.5 + 1)."""
    marks, activations = np.array([True, False, False, True]), np.array([0.0, 0.0, 2.0, 4.0])
    assert graded_iou(marks, activations, np.ones(4)) == pytest.approx(1 / 2.5)
    assert graded_iou(marks, activations - 9, np.ones(4)) == pytest.approx(1 / 2.5), (
        "negative activations are no case apart"
    )


def test_graded_iou_of_sharp_masks_is_plain_iou():
    random = np.random.default_rng(0)
    inside, active = random.random(400) < 0.3, random.random(400) < 0.3
    found = graded_iou(inside, active.astype(float), np.ones(400))
    assert found == pytest.approx((inside & active).sum() / (inside | active).sum())


def test_metrics_are_none_if_undefined():
    none, some, flat, rising = (
        np.zeros(5, bool),
        np.array([True, False] * 2 + [True]),
        np.full(5, 2.0),
        np.linspace(0, 4, 5),
    )
    assert average_precision(none, rising, np.ones(5)) is None
    assert correlation(some, flat, np.ones(5)) is None
    assert graded_iou(some, flat, np.ones(5)) is None
    assert f1(none, none, np.ones(5)) is None


def test_weighted_quantile_by_hand():
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.5) == 2.0


def test_union_of_verdicts_keeps_unknown():
    assert union([(True, None), (False, None), (False, False)]) == [True, None, False]


# -- sample --------------------------------------------------------------------------------------------------------------


def test_sample_takes_equally_from_each_stratum():
    activations = np.random.default_rng(0).normal(0, 1, 200)
    chosen = sample(activations, [f"{n:03d}" for n in range(200)], 24)
    assert chosen.weight.sum() == pytest.approx(200)
    ranks = np.argsort(np.argsort(activations))[list(chosen.positions)]
    assert np.histogram(ranks, [0, 100, 160, 190, 200])[0].tolist() == [6, 6, 6, 6]


def test_sample_of_few_images_is_all_of_them():
    assert sorted(sample(np.linspace(0, 3, 4), list("abcd"), 400).positions) == [0, 1, 2, 3]


def test_sample_is_independent_of_image_order():
    activations, digests = np.random.default_rng(0).normal(0, 1, 50), [f"{n:02d}" for n in range(50)]
    order = np.random.default_rng(1).permutation(50)
    shuffled = [digests[n] for n in order]
    first = {digests[n] for n in sample(activations, digests, 12).positions}
    assert {shuffled[n] for n in sample(activations[order], shuffled, 12).positions} == first


def test_sample_weights_undo_stratification():
    activations = np.random.default_rng(0).normal(0, 1, 4000)
    marks = activations > 1.5
    chosen = sample(activations, [f"{n:04d}" for n in range(4000)], 800)
    seen = marks[list(chosen.positions)]
    assert seen.mean() > 0.2
    assert np.average(seen, weights=chosen.weight) == pytest.approx(marks.mean(), abs=0.01)


# -- metrics of other projects ---------------------------------------------------------------------------------------


def test_responsiveness_and_purity_are_those_of_fade():
    """Puri et al. 2025: |2 AUROC - 1|, and the average precision of the activations with the sign that the AUROC says."""
    activations, marks = np.array([4.0, 3.0, 2.0, 1.0]), np.array([True, False, True, False])
    equal = np.ones(4)
    found = all_metrics(marks, activations, equal)
    assert found["responsiveness"] == pytest.approx(2 * 3 / 4 - 1)
    assert found["purity"] == pytest.approx((1 / 1 + 2 / 3) / 2)
    turned = all_metrics(marks, -activations, equal)
    assert (turned["responsiveness"], turned["purity"]) == (found["responsiveness"], found["purity"])
    assert turned["auprc"] == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_weight_of_an_image_is_that_of_so_many_images():
    random = np.random.default_rng(0)
    activations, marks, weight = random.normal(0, 1, 30), random.random(30) < 0.4, random.integers(1, 5, 30)
    repeated = all_metrics(*(np.repeat(each, weight) for each in (marks, activations)), np.ones(weight.sum()))
    weighted = all_metrics(marks, activations, weight.astype(float))
    for name in ("responsiveness", "purity", "balanced_accuracy", "correlation"):
        assert weighted[name] == pytest.approx(repeated[name])


def test_balanced_accuracy_guesses_activity():
    marks, active = np.array([True, True, False, False, False]), np.array([True, False, False, False, True])
    assert balanced_accuracy(marks, active, np.ones(5)) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert balanced_accuracy(marks, np.ones(5, dtype=bool), np.ones(5)) is None


@pytest.mark.parametrize("marks", [[True] * 3, [False] * 3])
def test_marks_that_are_all_equal_have_no_area(marks: list[bool]):
    found = all_metrics(np.array(marks), np.array([1.0, 2.0, 3.0]), np.ones(3))
    assert (found["responsiveness"], found["purity"]) == (None, None)


# -- detection -----------------------------------------------------------------------------------------------------------


class BrightnessJudge:
    """Judges the first pixel of an image, and does not know the dark ones."""

    name = "brightness"

    def __init__(self, unknown: float):
        self._unknown = unknown

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        seen = [int(image.pixels[0, 0, 0]) for image in images]
        return [(None,) if value < self._unknown * 256 else (value > 200,) for value in seen]


def test_matching_unit_is_detected():
    images = [noise(seed) for seed in range(80)]
    activations = np.array([float(image.pixels[0, 0, 0]) for image in images])
    found = detect(["bright"], images, activations, BrightnessJudge(0), 40)
    assert (found["judge"], found["judged"]) == ("brightness", 34)
    assert found["auprc"] == pytest.approx(1.0)
    assert detect(["bright"], images, -activations, BrightnessJudge(0), 40)["auprc"] < 0.5


def test_unknown_verdicts_give_no_scores():
    found = detect(["bright"], [noise(seed) for seed in range(20)], np.linspace(0, 19, 20), BrightnessJudge(1.1), 20)
    assert found["known"] == 0
    assert "auprc" not in found


# -- mask IoU ------------------------------------------------------------------------------------------------------------

IMAGES = [noise(seed, 20, 20) for seed in range(2)]
WHOLE = (0.0, 0.0, 20.0, 20.0)


def answer(rows: list[list[float]], box: tuple[float, float, float, float] = WHOLE) -> UnitActivation:
    return UnitActivation(value=0.0, map=np.array(rows, np.float32), box=box)


def region(rows: list[list[int]]) -> Region:
    return np.array(rows, np.bool_)


ANSWERS = [answer([[0, 0], [0, 4]]), answer([[0, 2], [0, 0]])]
REGIONS = [region([[0, 0], [1, 1]]), region([[0, 0], [0, 0]])]


def test_mask_iou_by_hand():
    """Median 0, maximum 4: degrees 0 0 0 1 and 0 0.5 0 0. Smaller: 1. Larger: 0 0 1 1 and 0 0.5 0 0, 2.5 in total."""
    assert mask_iou(IMAGES, REGIONS, ANSWERS, np.ones(2)) == pytest.approx(1 / 2.5)
    assert mask_iou(IMAGES, REGIONS, ANSWERS, np.array([1.0, 3.0])) == pytest.approx(1 / 3.5), "2 + 3 * 0.5"


def test_mask_iou_is_one_inside_and_zero_outside():
    inside, outside = answer([[0, 0], [0, 1]]), answer([[1, 0], [0, 0]])
    where = [region([[0, 0], [0, 1]])]
    assert mask_iou(IMAGES[:1], where, [inside], np.ones(1)) == 1
    assert mask_iou(IMAGES[:1], where, [outside], np.ones(1)) == 0


def test_mask_iou_ignores_cropped_part():
    """The network cropped the left half, in which part of the region lies."""
    cropped = answer([[0, 0], [0, 1]], box=(10.0, 0.0, 20.0, 20.0))
    where = region([[1, 1, 0, 0], [1, 1, 0, 1]])
    assert seen_part(IMAGES[0], where, cropped).tolist() == [[False, False], [False, True]]
    assert mask_iou(IMAGES[:1], [where], [cropped], np.ones(1)) == 1


def test_mask_iou_is_none_if_undefined():
    without_map = UnitActivation(value=1.0, map=None, box=WHOLE)
    assert mask_iou(IMAGES, REGIONS, [without_map] * 2, np.ones(2)) is None
    assert mask_iou(IMAGES, [REGIONS[1]] * 2, ANSWERS, np.ones(2)) is None
    assert mask_iou(IMAGES, REGIONS, [answer([[3, 3], [3, 3]])] * 2, np.ones(2)) is None
    assert mask_iou([], [], [], np.ones(0)) is None


class CornerJudge(BrightnessJudge):
    """Locates everything below the diagonal."""

    def locate(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[Region]:
        return [np.tri(4, k=-1, dtype=np.bool_) for _ in images]


def test_locating_judge_adds_mask_iou():
    images = [noise(seed, 20, 20) for seed in range(8)]

    def probe(probed: Sequence[EncodedImage]) -> list[UnitActivation]:
        return [answer(np.tri(4, k=-1).tolist()) for _ in probed]

    found = detect(["x"], images, np.linspace(0, 7, 8), CornerJudge(0), 8, probe)
    assert found["mask_iou"] == pytest.approx(1.0)
    assert "mask_iou" not in detect(["x"], images, np.linspace(0, 7, 8), CornerJudge(0), 8)
