"""Agreement between runs of one unit and between units, and risk against coverage."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from openmaia.config import load
from openmaia.evaluate.certainty import BY_CONFIRMATION, keep, kept, measure
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.reliability import Asked, Words, agreement
from openmaia.evaluate.selective import selective
from openmaia.figures.coverage import coverage
from openmaia.report import write_report
from openmaia.store.evidence import Confirmation, Shot
from openmaia.store.run import Run
from openmaia.units import Unit
from tests.conftest import REPOSITORY
from tests.evaluate.talking import Talker, asker, in_turn
from tests.samples import record


def unit(index: int) -> Unit:
    return Unit(target="net", layer="a", index=index)


def claim(index: int, replicate: int, *labels: str) -> Claim:
    said = ", ".join(labels)
    return Claim(unit=unit(index), replicate=replicate, description=said, labels=labels)


DISTINCT = [claim(at, replicate, word) for at, word in enumerate(("red", "dog", "rings")) for replicate in (0, 1)]


def test_runs_that_say_the_same_of_each_unit_agree_within_and_not_between():
    found = agreement(DISTINCT, Words(), 200)
    assert found is not None
    assert (found.units, found.within.mean, found.between.mean, found.gap.mean) == (3, 1.0, 0.0, 1.0)
    assert found.identified.mean == 1.0
    assert found.chance == pytest.approx(1 / 3)


def test_labels_that_fit_any_unit_agree_as_much_between_units():
    found = agreement([claim(at, replicate, "animal") for at in range(3) for replicate in (0, 1)], Words(), 200)
    assert found is not None
    assert (found.within.mean, found.between.mean, found.gap.mean) == (1.0, 1.0, 0.0)
    assert found.identified.mean == pytest.approx(found.chance)


def test_labels_are_matched_one_to_one_over_the_larger_number():
    pairs = [
        (claim(0, 0, "red", "blue"), claim(0, 1, "blue")),
        (claim(0, 0, "a red circle"), claim(0, 1, "red")),
        (claim(0, 0), claim(0, 1)),
        (claim(0, 0), claim(0, 1, "red")),
    ]
    assert Words().alike(pairs) == [0.5, 0.5, 1.0, 0.0]


def test_without_replicates_there_is_no_agreement_to_report():
    assert agreement([claim(0, 0, "red"), claim(1, 0, "blue")], Words(), 10) is None


def test_a_judge_is_asked_in_words_and_named():
    talker = Talker(lambda question, tried: "Yes." if question.count("dog") > 2 else "no")
    found = agreement(DISTINCT, Asked(asker(talker)), 100)
    assert found is not None
    assert found.by == "judged by talker"
    assert found.by_unit == {unit(0): 0.0, unit(1): 1.0, unit(2): 0.0}


def test_a_judge_that_never_answers_leaves_agreement_unknown():
    assert Asked(asker(in_turn("perhaps"))).alike([(DISTINCT[0], DISTINCT[1])]) == [None]


def test_risk_against_coverage_by_hand():
    sure, risk = {unit(n): float(n) for n in range(4)}, {unit(0): 0.8, unit(1): 0.4, unit(2): 0.2, unit(3): 0.0}
    found = selective(sure, risk, "x", 500)
    assert found is not None
    assert [round(one.mean, 4) for at, one in found.risks if at == 1.0] == [0.35]
    areas = [0.0, 0.1, 0.2, 0.35]  # the surest one, two, three and all
    assert found.area.mean == pytest.approx(np.mean(areas)) == pytest.approx(found.oracle)
    assert found.gain.mean == pytest.approx(0.35 - np.mean(areas))
    assert found.gain.low > 0


def test_a_certainty_that_says_nothing_gains_nothing():
    found = selective({unit(n): 1.0 for n in range(6)}, {unit(n): n / 6 for n in range(6)}, "x", 100)
    assert found is not None
    assert found.area.mean == pytest.approx(found.random)
    assert found.gain.low == pytest.approx(0, abs=1e-9) == found.gain.high


def test_fewer_than_two_units_have_no_curve():
    assert selective({unit(0): 1.0}, {unit(0): 0.5}, "x", 10) is None
    assert coverage([]) is None


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three units investigated twice, with a test of each answer; nothing is evaluated."""
    config = load([str(REPOSITORY / "configs/closed-form.yaml"), f"paths.runs={tmp_path}", "replicates=2"])
    run = Run.create(config)
    run.set_plan([unit(n) for n in range(3)], 2)
    for one in DISTINCT:
        shots = tuple(
            Shot(label="x", prompt="x", near_miss=near, seed=1, digest="d", activation=value, percentile=50.0)
            for near, value in (("", 1.0), ("y", 0.5))
        )
        whole = record(one.unit, replicate=one.replicate, labels=one.labels, description=one.description)
        run.publish(dataclasses.replace(whole, confirmation=Confirmation(shots=shots)))
    return run


def test_what_was_measured_is_kept_and_read_back(run: Run):
    keep(run, asker(in_turn("yes")))
    found = kept(run)
    assert [one.by for one in found.agreements] == ["words in common", "judged by talker"]
    assert found == measure(run, asker(in_turn("yes")))


def test_an_unmeasured_run_has_nothing_to_show(run: Run):
    assert kept(run).is_empty


def test_certainty_without_a_known_risk_has_no_curve(run: Run):
    assert run.headers()[0]["confirm_auc"] == 1.0
    assert BY_CONFIRMATION not in [curve.by for curve in measure(run, None).selective], "no risk is known yet"


def test_the_report_shows_agreement(run: Run):
    keep(run, None)
    page = write_report([run]).read_text()
    assert "words in common" in page
    assert "Loop’s own test" in page
