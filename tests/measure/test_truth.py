"""Labels matched with known truths, and the rates that summarise the matches."""

import numpy as np
import pytest
from scipy import stats

from measure.science import truth
from measure.science.truth import TruthMatch

RED, STRIPED, RED_CIRCLE = (("red",),), (("red",), ("horizontal stripes",)), (("red", "circle"),)
AMONG = truth.candidates([RED, STRIPED, RED_CIRCLE, (("two separate figures",),)])


def score(labels: list[str], wanted: truth.TruthSlots) -> TruthMatch:
    return truth.match(labels, wanted, AMONG)


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
def test_truth_in_any_order_and_spelling_is_exact(labels: list[str], wanted: truth.TruthSlots):
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
def test_distractor_part_or_excess_is_not_exact(labels: list[str], wanted: truth.TruthSlots):
    assert not score(labels, wanted).exact


def test_ambiguous_label_hits_no_slot():
    assert score(["red horizontal stripes"], STRIPED).hits == 0


def test_labels_and_slots_are_matched_one_to_one():
    found = score(["red", "RED", "a red thing"], STRIPED)
    assert (found.labels, found.slots, found.hits) == (3, 2, 1)


def test_abstention_is_exact_outside_vocabulary():
    outside = (("two separate figures",),)
    assert score([], outside).exact
    assert not score(["dots"], outside).exact


def test_label_is_ranked_against_all_truths():
    similar = truth.candidates([(("red",),)])
    assert truth.match(["red only at the top"], (("red",),), similar).exact
    nearer = truth.candidates([(("red",),), (("red only at the top",),)])
    assert not truth.match(["red only at the top"], (("red",),), nearer).exact


def test_candidates_contain_siblings_and_parts():
    found = truth.candidates([RED_CIRCLE])
    assert {
        frozenset({"blue", "circle"}),
        frozenset({"red", "square"}),
        frozenset({"red"}),
        frozenset({"circle"}),
    } <= set(found)


def test_rates_by_hand():
    scores = [
        TruthMatch(labels=1, slots=1, hits=1, inside=True),
        TruthMatch(labels=2, slots=2, hits=1, inside=True),
        TruthMatch(labels=0, slots=1, hits=0, inside=False),
        TruthMatch(labels=1, slots=1, hits=0, inside=False),
    ]
    found = truth.rates(scores)
    wilson = stats.binomtest(2, 4).proportion_ci(method="wilson")
    assert found["units"] == 4
    assert np.allclose(found["exact"], [0.5, wilson.low, wilson.high], atol=1e-4)  # pyright: ignore[reportArgumentType]
    assert found["precision"][0] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-4)  # pyright: ignore[reportIndexIssue]
    assert found["recall"][0] == pytest.approx(0.75)  # pyright: ignore[reportIndexIssue]


def test_rates_of_no_units_are_none():
    assert truth.rates([]) == {
        "units": 0, "exact": None, "exact_inside": None, "abstained_outside": None, "precision": None, "recall": None,
    }  # fmt: skip
