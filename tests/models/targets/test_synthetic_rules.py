"""Synthetic units: their lists, and what the two presets make of detections."""

import numpy as np
import pytest

from openmaia.models.targets.synthetic.rules import (
    GRID,
    PRESETS,
    SIZE,
    ConceptDetection,
    activation,
    combine,
    reduce_mask,
)
from openmaia.models.targets.synthetic.units import MODES, read, truth


@pytest.mark.parametrize(("preset", "counts"), [("repo", (47, 18, 20)), ("paper", (45, 24, 19))])
def test_lists_have_the_published_lengths(preset: str, counts: tuple[int, ...]):
    units = read(preset)
    assert tuple(len(units[layer]) for layer in MODES) == counts
    assert {len(concepts) for concepts in units["mono"]} == {1}
    assert {len(concepts) for layer in ("or", "and") for concepts in units[layer]} == {2}
    assert all(len(set(listed)) == len(listed) for listed in units.values())


def test_concepts_keep_order_and_blanks():
    assert read("repo")["mono"][38] == ("car window",)
    assert read("repo")["and"][3] == ("grass", "dog")
    assert read("paper")["and"][9] == ("grass", "dog")


def test_truth_in_words():
    assert truth("mono", ("bird",)) == "bird"
    assert truth("or", ("dog", "car")) == "dog or car"
    assert truth("and", ("grass", "dog")) == "grass, when dog is present too"
    assert truth("andnot", ("grass", "dog")) == "grass, when dog is absent"


def found(value: float, cells: slice) -> ConceptDetection:
    mask = np.zeros((GRID, GRID), dtype=bool)
    mask[cells] = value > 0
    return ConceptDetection(boxes=int(value > 0), activation=value, mask=mask)


UPPER, LOWER = slice(0, 28), slice(28, 56)


@pytest.mark.parametrize(
    ("preset", "layer", "one", "other", "value", "rows"),
    [
        ("repo", "mono", 0.6, None, 0.6, 28),
        ("repo", "mono", 0.0, None, 0.0, 0),
        ("repo", "or", 0.6, 0.8, 0.8, 56),
        ("repo", "or", 0.6, 0.0, 0.6, 28),
        ("repo", "or", 0.0, 0.8, 0.8, 28),
        ("repo", "or", 0.0, 0.0, 0.0, 0),
        ("paper", "or", 0.6, 0.8, 0.7, 56),
        ("paper", "or", 0.6, 0.0, 0.6, 28),
        ("paper", "or", 0.0, 0.8, 0.8, 28),
        ("paper", "or", 0.0, 0.0, 0.0, 0),
        ("repo", "and", 0.6, 0.8, 0.6, 28),
        ("paper", "and", 0.6, 0.8, 0.6, 28),
        ("paper", "and", 0.6, 0.0, 0.0, 0),
        ("paper", "and", 0.0, 0.8, 0.0, 0),
        ("paper", "and", 0.0, 0.0, 0.0, 0),
        ("repo", "andnot", 0.6, 0.8, 0.0, 0),
        ("repo", "andnot", 0.6, 0.0, 0.6, 28),
        ("paper", "andnot", 0.0, 0.8, 0.0, 0),
        ("paper", "andnot", 0.0, 0.0, 0.0, 0),
    ],
)
def test_truth_tables(preset: str, layer: str, one: float, other: float | None, value: float, rows: int):
    concepts = [found(one, UPPER)] + ([] if other is None else [found(other, LOWER)])
    answer = combine(layer, concepts, PRESETS[preset], "lot")
    assert answer.shape == (GRID, GRID) and answer.dtype == np.float32
    assert answer.max() == pytest.approx(value)
    # Any threshold between 0 and the activation shows the same mask.
    for threshold in (0.0, value * 0.99):
        assert (answer > threshold).sum() == rows * GRID


@pytest.mark.parametrize(("one", "other"), [(0.6, 0.0), (0.0, 0.8), (0.0, 0.0)])
def test_incomplete_and_unit_answers_noise(one: float, other: float):
    def answer(lot: str) -> float:
        shown = combine("and", [found(one, UPPER), found(other, LOWER)], PRESETS["repo"], lot)
        assert (shown > 0).sum() <= 1
        return round(float(shown.max()), 5)

    values = [answer(f"picture {i}") for i in range(300)]
    assert values == [answer(f"picture {i}") for i in range(300)]
    assert all(value == round(value, 2) for value in values)
    assert (min(values), max(values)) == (0.0, 0.1)
    assert np.mean(values) == pytest.approx(0.05, abs=0.006)


def test_box_thresholds_are_the_published_ones():
    assert {preset: rules.box_threshold for preset, rules in PRESETS.items()} == {"repo": 0.25, "paper": 0.30}


def test_scores_are_averaged_and_truncated_in_repo():
    assert activation([0.819, 0.401], PRESETS["paper"]) == pytest.approx(0.61)
    assert activation([0.819, 0.409], PRESETS["repo"]) == pytest.approx((0.81 + 0.40) / 2)
    for score, counted in {0.29: 0.29, 0.57: 0.57, 0.28999: 0.28, 0.3: 0.3, 0.99999: 0.99, 1.0: 1.0}.items():
        assert activation([score], PRESETS["repo"]) == counted
    assert activation([], PRESETS["repo"]) == activation([], PRESETS["paper"]) == 0.0


def test_masks_are_dilated():
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    mask[90:135, 90:135] = True
    assert mask.mean() == pytest.approx(0.04, abs=0.001)
    assert reduce_mask(mask).mean() == pytest.approx(0.124, abs=0.003)


def test_small_masks_never_vanish():
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    assert not reduce_mask(mask).any()
    mask[101, 202] = True
    assert reduce_mask(mask)[25, 50]
    assert reduce_mask(~mask).all()
