"""Detection on real pictures: weighted metrics against scikit-learn, and the stratified sample."""

import numpy as np
import pytest
from sklearn import metrics

from openmaia.evaluate.detection import (
    average_precision,
    correlation,
    detect,
    f1,
    graded_iou,
    sample,
    union,
    weighted_quantile,
)
from openmaia.evaluate.judges import Verdict
from openmaia.images import Picture
from tests.samples import noise


def case(seed: int, n: int = 40):
    random = np.random.default_rng(seed)
    activations = random.normal(0, 1, n).round(1)
    return activations + random.normal(0, 1, n) > 1, activations, random.uniform(0.5, 4, n)


@pytest.mark.parametrize("seed", range(6))
def test_average_precision_is_scikit_learns(seed: int):
    marks, activations, weight = case(seed)
    expected = metrics.average_precision_score(marks, activations, sample_weight=weight)
    assert average_precision(marks, activations, weight) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_f1_is_scikit_learns(seed: int):
    marks, activations, weight = case(seed)
    active = activations > 0.5
    assert f1(marks, active, weight) == pytest.approx(metrics.f1_score(marks, active, sample_weight=weight))


@pytest.mark.parametrize("seed", range(6))
def test_correlation_is_numpys_weighted(seed: int):
    marks, activations, weight = case(seed)
    table = np.cov(np.stack([marks.astype(float), activations]), aweights=weight)
    assert correlation(marks, activations, weight) == pytest.approx(table[0, 1] / np.sqrt(table[0, 0] * table[1, 1]))


def test_graded_iou_by_hand():
    """Median 0, highest 4: degrees 0, 0, 0.5, 1; marked are the last and the first. (0 + 1) over (1 + 0 + 0.5 + 1)."""
    marks, activations = np.array([True, False, False, True]), np.array([0.0, 0.0, 2.0, 4.0])
    assert graded_iou(marks, activations, np.ones(4)) == pytest.approx(1 / 2.5)


def test_nothing_marked_or_a_constant_unit_gives_no_number():
    none, some, flat = np.zeros(5, bool), np.array([True, False] * 2 + [True]), np.full(5, 2.0)
    rising = np.arange(5.0)
    assert average_precision(none, rising, np.ones(5)) is None
    assert correlation(some, flat, np.ones(5)) is None
    assert graded_iou(some, flat, np.ones(5)) is None
    assert f1(none, none, np.ones(5)) is None


def test_a_sample_takes_from_every_stratum_and_stands_for_all():
    activations = np.random.default_rng(0).normal(0, 1, 200)
    digests = [f"{at:03d}" for at in range(200)]
    drawn = sample(activations, digests, 24)
    assert drawn.weight.sum() == pytest.approx(200)
    ranks = np.argsort(np.argsort(activations))[list(drawn.at)]
    counts, _ = np.histogram(ranks, [0, 100, 160, 190, 200])
    assert counts.tolist() == [6, 6, 6, 6]


def test_a_sample_of_few_pictures_is_all_of_them():
    drawn = sample(np.arange(4.0), list("abcd"), 400)
    assert sorted(drawn.at) == [0, 1, 2, 3]


def test_a_sample_does_not_depend_on_the_order_of_the_pictures():
    activations, digests = np.random.default_rng(0).normal(0, 1, 50), [f"{at:02d}" for at in range(50)]
    order = np.random.default_rng(1).permutation(50)
    one = {digests[at] for at in sample(activations, digests, 12).at}
    shuffled = [digests[at] for at in order]
    assert {shuffled[at] for at in sample(activations[order], shuffled, 12).at} == one


def test_weights_undo_the_stratification():
    """The share of marked pictures in all of them, from a sample that holds far too many of them."""
    random = np.random.default_rng(0)
    activations = random.normal(0, 1, 4000)
    marks = activations > 1.5
    drawn = sample(activations, [f"{at:04d}" for at in range(4000)], 800)
    seen = marks[list(drawn.at)]
    assert seen.mean() > 0.2
    assert np.average(seen, weights=drawn.weight) == pytest.approx(marks.mean(), abs=0.01)


def test_a_weighted_quantile_by_hand():
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.5) == 2.0


def test_one_shown_label_is_enough_and_the_unknown_stays_unknown():
    assert union([(True, None), (False, None), (False, False)]) == [True, None, False]


class Known:
    """A judge of the brightness of pictures' first pixel, who does not know some of them."""

    name = "brightness"

    def __init__(self, unknown: float):
        self._unknown = unknown

    def judge(self, pictures: list[Picture], labels: list[str]) -> list[tuple[Verdict, ...]]:
        seen = [int(picture.pixels[0, 0, 0]) for picture in pictures]
        return [(None,) if value < self._unknown * 256 else (value > 200,) for value in seen]


def test_a_unit_that_does_what_its_label_says_is_detected():
    pictures = [noise(at) for at in range(80)]
    activations = np.array([float(picture.pixels[0, 0, 0]) for picture in pictures])
    found = detect(["bright"], pictures, activations, Known(0), 40)  # pyright: ignore[reportArgumentType]
    assert (found["judge"], found["judged"]) == ("brightness", 34)
    assert found["auprc"] == pytest.approx(1.0)
    other = detect(["bright"], pictures, -activations, Known(0), 40)  # pyright: ignore[reportArgumentType]
    assert other["auprc"] < 0.5


def test_a_judge_that_mostly_does_not_know_gives_no_scores():
    pictures = [noise(at) for at in range(20)]
    found = detect(["bright"], pictures, np.arange(20.0), Known(1.1), 20)  # pyright: ignore[reportArgumentType]
    assert found["known"] == 0
    assert "auprc" not in found
