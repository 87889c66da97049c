"""The stored results of the sanity tests, and the caveats that follow from them."""

from measure.science.sanity import PASS, UNITS, stamp
from openmaia.evaluation.analysis.sanity import (
    TESTS,
    grouped_notes,
    judged_metrics,
    measured_results,
    notes,
    stored,
    warning,
)
from openmaia.evaluation.metric import all_metrics


def test_sanity_covers_every_metric_and_test():
    assert {name: set(tests) for name, tests in measured_results().items()} == {
        name: {*TESTS} for name in judged_metrics()
    }


def test_warning_is_given_for_failing_metrics_only():
    for name, tests in measured_results().items():
        assert bool(warning(name)) == (not all(tests.values()))
    assert warning("auc_minus_other") == warning("auc")


def test_notes_name_every_failing_metric():
    failing = [name for name in judged_metrics() if warning(name)]
    assert failing
    assert all(note.endswith(warning(name)) for note, name in zip(notes(judged_metrics()), failing, strict=True))


def test_grouped_notes_name_each_caveat_once_with_all_its_metrics():
    failing = [name for name in judged_metrics() if warning(name)]
    found = dict(note.split(": ", 1) for note in grouped_notes(judged_metrics()))
    assert found.keys() == {warning(name) for name in failing}
    assert all(all_metrics()[name].text in found[warning(name)].split("; ") for name in failing)


def test_sanity_judged_this_code():
    assert stored()["stamp"] == stamp(), "the metrics have changed: make science only=sanity judges them again"


def test_sanity_passes_follow_from_shares_of_enough_units():
    found = stored()
    assert found["units"] == UNITS >= 60
    passes = {name: {test: share >= PASS for test, share in each.items()} for name, each in found["shares"].items()}
    assert passes == found["results"]
