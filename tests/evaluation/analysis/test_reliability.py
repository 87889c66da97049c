"""Agreement between runs of one unit and between units, and risk against coverage."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.agreement import ModelSimilarity, WordOverlap, agreement
from openmaia.evaluation.analysis.reliability import (
    BY_CONFIRMATION,
    compare_replicates,
    measure_reliability,
    read_reliability,
    write_reliability,
)
from openmaia.evaluation.analysis.selective import selective
from openmaia.evaluation.claims import Claim
from openmaia.reporting.browser.write import write_report
from openmaia.runs.evidence import Confirmation, ConfirmationSample
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.evaluation.scripted_model import ScriptedModel, answering, model
from tests.helpers.samples import record


def unit(index: int) -> Unit:
    return Unit(target="net", layer="a", index=index)


def claim(index: int, replicate: int, *labels: str) -> Claim:
    said = ", ".join(labels)
    return Claim(unit=unit(index), replicate=replicate, description=said, labels=labels)


DISTINCT = [claim(at, replicate, word) for at, word in enumerate(("red", "dog", "rings")) for replicate in (0, 1)]


def test_specific_labels_agree_within_units_only():
    found = agreement(DISTINCT, WordOverlap(), 200)
    assert found is not None
    assert (found.units, found.within.mean, found.between.mean, found.gap.mean) == (3, 1.0, 0.0, 1.0)
    assert found.identified.mean == 1.0
    assert found.chance == pytest.approx(1 / 3)


def test_vague_labels_agree_between_units_too():
    found = agreement([claim(at, replicate, "animal") for at in range(3) for replicate in (0, 1)], WordOverlap(), 200)
    assert found is not None
    assert (found.within.mean, found.between.mean, found.gap.mean) == (1.0, 1.0, 0.0)
    assert found.identified.mean == pytest.approx(found.chance)


class RandomSimilarity:
    name = "random"

    def compare(self, pairs: Sequence[tuple[Claim, Claim]]) -> list[float | None]:
        return list(np.random.default_rng(0).random(len(pairs)))


@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_equal_claims_are_identified_as_often_as_chance_says(replicates: int):
    found = agreement([claim(at, n, "x") for at in range(40) for n in range(replicates)], WordOverlap(), 10)
    assert found is not None
    assert found.identified.mean == pytest.approx(found.chance)


@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_random_claims_are_identified_as_often_as_chance_says(replicates: int):
    found = agreement([claim(at, n, "x") for at in range(400) for n in range(replicates)], RandomSimilarity(), 200)
    assert found is not None
    assert found.identified.mean == pytest.approx(found.chance, abs=0.05)


def test_word_overlap_matches_labels_one_to_one():
    pairs = [
        (claim(0, 0, "red", "blue"), claim(0, 1, "blue")),
        (claim(0, 0, "a red circle"), claim(0, 1, "red")),
        (claim(0, 0), claim(0, 1)),
        (claim(0, 0), claim(0, 1, "red")),
    ]
    assert WordOverlap().compare(pairs) == [0.5, 0.5, 1.0, 0.0]


def test_agreement_needs_replicates():
    assert agreement([claim(0, 0, "red"), claim(1, 0, "blue")], WordOverlap(), 10) is None


def test_model_similarity_asks_and_is_named():
    backbone = ScriptedModel(lambda question, tried: "Yes." if question.count("dog") > 2 else "no")
    found = agreement(DISTINCT, ModelSimilarity(model(backbone)), 100)
    assert found is not None
    assert found.by == "judged by scripted"
    assert found.by_unit == {unit(0): 0.0, unit(1): 1.0, unit(2): 0.0}


def test_model_similarity_without_answer_is_unknown():
    assert ModelSimilarity(model(answering("perhaps"))).compare([(DISTINCT[0], DISTINCT[1])]) == [None]


def test_risk_coverage_by_hand():
    sure, risk = {unit(n): float(n) for n in range(4)}, {unit(0): 0.8, unit(1): 0.4, unit(2): 0.2, unit(3): 0.0}
    found = selective(sure, risk, "x", 500)
    assert found is not None
    assert [round(one.mean, 4) for at, one in found.risks if at == 1.0] == [0.35]
    areas = [0.0, 0.1, 0.2, 0.35]  # the surest one, two, three and all
    assert found.area.mean == pytest.approx(np.mean(areas)) == pytest.approx(found.oracle)
    assert found.gain.mean == pytest.approx(0.35 - np.mean(areas))
    assert found.gain.low > 0


def test_constant_certainty_gains_nothing():
    found = selective({unit(n): 1.0 for n in range(6)}, {unit(n): n / 6 for n in range(6)}, "x", 100)
    assert found is not None
    assert found.area.mean == pytest.approx(found.random)
    assert found.gain.low == pytest.approx(0, abs=1e-9) == found.gain.high


def test_risk_coverage_needs_two_units():
    assert selective({unit(0): 1.0}, {unit(0): 0.5}, "x", 10) is None


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three units investigated twice, with a test of each answer; nothing is evaluated."""
    config = load([str(REPOSITORY / "configs/closed-form.yaml"), f"paths.runs={tmp_path}", "replicates=2"])
    run = Run.create(config)
    run.set_plan([unit(n) for n in range(3)], 2)
    for one in DISTINCT:
        shots = tuple(
            ConfirmationSample(
                label="x", prompt="x", near_miss=near, seed=1, digest="d", activation=value, percentile=50.0
            )
            for near, value in (("", 1.0), ("y", 0.5))
        )
        whole = record(one.unit, replicate=one.replicate, labels=one.labels, description=one.description)
        run.publish(dataclasses.replace(whole, confirmation=Confirmation(samples=shots)))
    return run


def test_reliability_is_stored_and_read(run: Run):
    measured = measure_reliability(
        run, compare_replicates(run, [WordOverlap(), ModelSimilarity(model(answering("yes")))])
    )
    assert [each.by for each in measured.agreements] == ["words in common", "judged by scripted"]
    write_reliability(run, measured)
    assert read_reliability(run) == measured


def test_reliability_of_unmeasured_run_is_empty(run: Run):
    assert read_reliability(run).is_empty


def test_certainty_without_risk_has_no_curve(run: Run):
    assert run.headers()[0]["confirm_auc"] == 1.0
    assert BY_CONFIRMATION not in [curve.by for curve in measure_reliability(run, ()).selective], "no risk is known yet"


def test_report_shows_agreement(run: Run):
    write_reliability(run, measure_reliability(run, compare_replicates(run, [WordOverlap()])))
    page = (write_report([run]).parent / "run.html").read_text()
    assert "words in common" in page
    assert "Loop’s own test" in page
