"""The verdict on a unit: derived in one place, from what is stored."""

from typing import Any

import pytest

from openmaia.evaluation.analysis.verdict import Verdict, all_controls, judge


def control(auc: float, low: float, prompts: int = 10, n: int = 30, high: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"auc": auc, "low": low, "high": high, "n": [n, n], "prompts": [prompts, n], "means": [1.0, 0.0], **more}


def scores(p: float | None = 0.001, q: float | None = 0.01, **controls: Any) -> dict[str, Any]:
    given = controls or {key: control(0.8, 0.7) for key in all_controls()}
    return {"outcome": "tested", "p": p, "q": q, "controls": given}


OPEN = control(0.6, 0.44, high=0.81)
REFUTED = control(0.3, 0.2, high=0.5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (scores(), Verdict.SUPPORTED),
        (scores(q=0.05), Verdict.SUPPORTED),
        (scores(q=0.051), Verdict.UNDECIDED),
        (scores(p=0.9, q=0.9), Verdict.UNDECIDED),
        (scores(p=None, q=None), Verdict.UNDECIDED),
        (scores(auc=control(0.9, 0.8), auc_random=OPEN), Verdict.UNDECIDED),
        (scores(auc=control(0.9, 0.8), auc_random=control(0.6, 0.5)), Verdict.UNDECIDED),
        (scores(auc=control(0.9, 0.8), auc_random=control(0.45, 0.3)), Verdict.UNDECIDED),
        (scores(auc=control(0.9, 0.8), auc_random=REFUTED), Verdict.NOT_SUPPORTED),
        (scores(p=None, q=None, auc=REFUTED), Verdict.NOT_SUPPORTED),
        (scores(auc_random=control(0.8, 0.7, means=[0.2, 0.1])), Verdict.SUPPORTED),
        (scores(auc_random=control(0.8, 0.7, means=[0.1, 0.2])), Verdict.NOT_SUPPORTED),
        (scores(auc=control(1.0, 1.0, prompts=3)), Verdict.NOT_TESTED),
    ],
)
def test_verdict_follows_the_rule(given: dict[str, Any], expected: Verdict):
    found = judge("answer", given)
    assert found.verdict is expected
    assert found.reason.endswith(".")


def test_every_control_has_to_be_certain():
    """A control with a higher AUC but fewer images may be the less certain one."""
    found = judge("answer", scores(auc=control(0.62, 0.55), auc_unrelated=control(0.7, 0.45, high=0.8)))
    assert found.verdict is Verdict.UNDECIDED
    assert found.worst is not None and found.worst.name == "unrelated prompts"
    assert found.worst.text == "unrelated prompts: AUC 0.70 (interval 0.45 to 0.80, 30 and 30 images)"


def test_reason_names_everything_that_is_open():
    found = judge("answer", scores(p=0.06, q=0.08, auc=OPEN, auc_unrelated=control(0.9, 0.8), auc_random=OPEN))
    assert found.reason.startswith("matched neutral images: interval 0.44 to 0.81 crosses 0.5; photographs: interval ")
    assert "; q = 0.08: descriptions of other units" in found.reason


def test_reason_names_a_null_that_is_too_small():
    found = judge("answer", scores(p=0.01, q=0.06) | {"null": 99})
    assert found.reason.startswith("q = 0.06: the null has only 99 values")
    assert "null" not in judge("answer", scores(p=0.02, q=0.06) | {"null": 99}).reason


def test_controls_that_were_not_measured_are_named():
    found = judge("answer", scores(auc=control(0.8, 0.7), auc_unrelated=control(1.0, 1.0, prompts=3)))
    assert [each.key for each in found.controls] == ["auc"]
    assert found.missing == ("images of other units' descriptions", "unrelated prompts", "photographs")


@pytest.mark.parametrize(
    ("stop", "given", "cause", "expected", "reason"),
    [
        ("pending", None, "", Verdict.NOT_TESTED, "is pending"),
        ("running", None, "", Verdict.NOT_TESTED, "is running"),
        ("failed", None, "the generator died", Verdict.FAILED, "the generator died"),
        ("damaged", None, "its record cannot be read", Verdict.FAILED, "its record cannot be read"),
        ("answer", None, "", Verdict.NOT_TESTED, "not evaluated yet"),
        ("abstain", None, "", Verdict.ABSTAINED, "found nothing"),
        ("limit", {"outcome": "abstained"}, "", Verdict.ABSTAINED, "without a description"),
        ("answer", {"outcome": "unwritten"}, "", Verdict.NOT_TESTED, "No usable test prompts"),
        ("answer", {"outcome": "undrawable"}, "", Verdict.NOT_TESTED, "do not show"),
    ],
)
def test_what_was_not_tested_says_why(
    stop: str, given: dict[str, Any] | None, cause: str, expected: Verdict, reason: str
):
    found = judge(stop, given, cause)
    assert found.verdict is expected
    assert reason in found.reason
    assert (found.p, found.worst, found.columns["worst_auc"]) == (None, None, None)


def test_columns_hold_what_tables_show():
    columns = judge("answer", scores(auc=control(0.8, 0.7))).columns
    assert (columns["verdict"], columns["p"], columns["q"]) == ("supported", 0.001, 0.01)
    assert (columns["worst_control"], columns["worst_auc"], columns["worst_low"]) == (
        "matched neutral images",
        0.8,
        0.7,
    )
