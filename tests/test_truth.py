"""Labels against known truths: matching by ranking, and the figures made of it."""

import numpy as np
import pytest
from scipy import stats

from openmaia.evaluate import truth
from openmaia.evaluate.truth import Score

RED, STRIPED, RED_CIRCLE = (("red",),), (("red",), ("horizontal stripes",)), (("red", "circle"),)
AMONG = truth.candidates([RED, STRIPED, RED_CIRCLE, (("two separate figures",),)])


def score(labels: list[str], wanted: truth.Truth) -> Score:
    return truth.score(labels, wanted, AMONG)


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (["red"], RED),
        (["Red things"], RED),
        (["horizontally striped patterns", "red"], STRIPED),
        (["a red disc"], RED_CIRCLE),
        (["circle, red"], RED_CIRCLE),
    ],
)
def test_the_truth_in_any_order_and_spelling_is_exact(labels: list[str], wanted: truth.Truth):
    assert score(labels, wanted).exact


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (["blue"], RED),
        (["vertical stripes", "red"], STRIPED),
        (["red"], STRIPED),
        (["red", "horizontal stripes", "circle"], STRIPED),
        (["red"], RED_CIRCLE),
        (["red", "circle"], RED_CIRCLE),
        (["blue circle"], RED_CIRCLE),
        (["red circle"], RED),
        (["a colour"], RED),
        ([], RED),
    ],
)
def test_a_near_distractor_a_part_or_too_much_is_not_exact(labels: list[str], wanted: truth.Truth):
    assert not score(labels, wanted).exact


def test_a_label_that_fits_two_slots_equally_hits_neither():
    assert score(["red horizontal stripes"], STRIPED).hits == 0


def test_labels_and_slots_are_matched_one_to_one():
    found = score(["red", "RED", "a red thing"], STRIPED)
    assert (found.labels, found.slots, found.hits) == (3, 2, 1)


def test_outside_the_vocabulary_to_abstain_is_exact_and_to_claim_is_not():
    outside = (("two separate figures",),)
    assert score([], outside).exact
    assert not score(["dots"], outside).exact


def test_a_label_is_ranked_against_the_truths_of_all_units():
    similar = truth.candidates([(("red",),)])
    assert truth.score(["red only at the top"], (("red",),), similar).exact
    nearer = truth.candidates([(("red",),), (("red only at the top",),)])
    assert not truth.score(["red only at the top"], (("red",),), nearer).exact


def test_distractors_hold_every_other_word_of_the_kind_and_each_part():
    found = truth.candidates([RED_CIRCLE])
    assert {
        frozenset({"blue", "circle"}),
        frozenset({"red", "square"}),
        frozenset({"red"}),
        frozenset({"circle"}),
    } <= set(found)


def test_figures_agree_with_a_case_computed_by_hand():
    scores = [
        Score(labels=1, slots=1, hits=1, inside=True),
        Score(labels=2, slots=2, hits=1, inside=True),
        Score(labels=0, slots=1, hits=0, inside=False),
        Score(labels=1, slots=1, hits=0, inside=False),
    ]
    found = truth.figures(scores)
    wilson = stats.binomtest(2, 4).proportion_ci(method="wilson")
    assert found["units"] == 4
    assert np.allclose(found["exact"], [0.5, wilson.low, wilson.high], atol=1e-4)  # pyright: ignore[reportArgumentType]
    assert found["precision"][0] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-4)  # pyright: ignore[reportIndexIssue]
    assert found["recall"][0] == pytest.approx(0.75)  # pyright: ignore[reportIndexIssue]


def test_of_no_units_there_are_no_figures():
    assert truth.figures([]) == {
        "units": 0, "exact": None, "exact_inside": None, "abstained_outside": None, "precision": None, "recall": None,
    }  # fmt: skip
