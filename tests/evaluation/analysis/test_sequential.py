"""Levels of a test that looks several times, and what a look says."""

import numpy as np
import pytest
from scipy import stats

from openmaia.evaluation.analysis.sequential import ERROR, Look, judge_look, levels


def test_one_look_spends_the_whole_error():
    assert levels((30,)) == pytest.approx([ERROR])


@pytest.mark.parametrize(
    ("looks", "bounds"),
    [(2, [2.157, 2.201]), (3, [2.279, 2.295, 2.296]), (5, [2.438, 2.427, 2.410, 2.397, 2.386])],
)
def test_bounds_are_the_published_ones(looks: int, bounds: list[float]):
    """Bounds of equally spaced looks by Lan and DeMets' function that resembles Pocock's, two-sided, 0.05."""
    found = [stats.norm.isf(each / 2) for each in levels(tuple(range(10, 10 * looks + 1, 10)))]
    assert found == pytest.approx(bounds, abs=0.002)


@pytest.mark.parametrize("sizes", [(10, 20, 40, 60), (7, 60), (10, 11, 1000)])
def test_error_over_all_looks_is_that_of_one_interval(sizes: tuple[int, ...]):
    """The sums of normal numbers are a Brownian motion at the looks. 400,000 of them have a standard error of 0.0003."""
    steps = np.diff([0, *sizes])
    sums = np.cumsum(np.random.default_rng(0).normal(size=(400_000, len(sizes))) * np.sqrt(steps), axis=1)
    bounds = stats.norm.isf(np.array(levels(sizes)) / 2)
    missed = (np.abs(sums / np.sqrt(sizes)) > bounds).any(axis=1)
    assert missed.mean() == pytest.approx(ERROR, abs=0.0015)


def interval(low: float, high: float, auc: float | None = None) -> dict[str, float]:
    return {"low": low, "high": high, "auc": (low + high) / 2 if auc is None else auc}


@pytest.mark.parametrize(
    ("intervals", "first", "later"),
    [
        ([(0.6, 0.9), (0.51, 0.8)], Look.CLEAR, Look.CLEAR),
        ([(0.6, 0.9), (0.5, 0.8)], Look.OPEN, Look.OPEN),
        ([(0.6, 0.9), (0.3, 0.5)], Look.HOPELESS, Look.HOPELESS),
        ([(0.6, 0.9), (0.3, 0.6)], Look.OPEN, Look.HOPELESS),
        ([], Look.OPEN, Look.OPEN),
    ],
)
def test_look_is_clear_hopeless_or_open(intervals: list[tuple[float, float]], first: Look, later: Look):
    """After the first look, an AUC at or below chance is hopeless even if its interval crosses chance."""
    controls = [interval(*each) for each in intervals]
    assert judge_look(controls, is_first=True) is first
    assert judge_look(controls, is_first=False) is later
