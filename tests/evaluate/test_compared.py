"""Runs against each other: paired on the units they share, with what cannot be compared said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from openmaia.config import load
from openmaia.evaluate.bootstrap import Draws, constant
from openmaia.evaluate.compared import compared, difference, signed_rank_p
from openmaia.evaluate.levels import levels
from openmaia.evaluate.run import pooled
from openmaia.store.records import Stop
from openmaia.store.run import Owed, Run
from openmaia.units import Unit
from tests.report.making import evaluation, record, run
from tests.samples import record as sample

RESAMPLES = 200


def unit(index: int) -> Unit:
    return Unit(target="net", layer="layer4", index=index)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("pair")
    return run(folder / "a"), run(folder / "b")


def drawn(values: list[float]) -> dict[Unit, Draws]:
    return {unit(at): constant(str(unit(at)), value, RESAMPLES) for at, value in enumerate(values)}


def test_the_difference_is_paired_over_shared_units_alone():
    found = difference("auc", drawn([0.9, 0.8, 0.7]), drawn([0.5, 0.6]))
    assert found is not None
    assert (found.units, found.one.mean) == (2, pytest.approx(0.85))
    assert found.difference.mean == pytest.approx((0.4 + 0.2) / 2)
    assert 0.2 <= found.difference.low <= found.difference.mean <= found.difference.high <= 0.4


def test_p_is_scipys_signed_rank_test():
    values = np.random.default_rng(0).normal(0.3, 1, 20).tolist()
    assert signed_rank_p(values) == pytest.approx(stats.wilcoxon(values).pvalue)


def test_of_one_unit_there_is_no_test_and_of_equal_runs_no_evidence():
    assert signed_rank_p([0.3]) is None
    assert signed_rank_p([0.0, 1e-12, 0.0]) == 1.0


def test_p_values_are_adjusted_over_all_rows(pair: tuple[Run, Run]):
    (found,) = compared([(pair[0], "a"), (pair[1], "b")], RESAMPLES)
    known = [one for one in found.differences if one.p is not None]
    expected = stats.false_discovery_control([one.p for one in known])
    assert [one.adjusted for one in known] == pytest.approx(expected.tolist())


def test_a_run_does_not_differ_from_itself(pair: tuple[Run, Run]):
    (found,) = compared([(pair[0], "a"), (pair[0], "b")], RESAMPLES)
    assert found.units == 3
    assert {one.measure for one in found.differences} >= {"auc", "turns", "z_difference", "detection_auprc"}
    for one in found.differences:
        assert (one.difference.mean, one.difference.low, one.difference.high) == (0, 0, 0)


def test_every_pair_of_runs_is_compared_and_units_in_one_alone_are_counted(pair: tuple[Run, Run], tmp_path: Path):
    config = load(["name=b", "units=all", "target.name=net", "target.layers=[layer4]", f"paths.runs={tmp_path}"])
    other = Run.create(config)
    for index in (0, 1, 2, 9):
        other.publish(record(unit(index), config))
    runs = [(pair[0], "a"), (other, "b"), (pair[1], "c")]
    found = compared(runs, RESAMPLES)
    assert [(one.one, one.other, one.alone) for one in found] == [("a", "b", (0, 1)), ("a", "c", (0, 0)), ("b", "c", (1, 0))]  # fmt: skip


def test_the_sign_says_which_run_is_better(pair: tuple[Run, Run], tmp_path: Path):
    good, bad = pair[0], run(tmp_path)
    for at in range(2):
        bad.write_evaluation(Owed(unit=unit(at), replicate=0), evaluation(unit(at), best=-9.0))
    (found,) = compared([(good, "a"), (bad, "b")], RESAMPLES)
    assert next(one for one in found.differences if one.measure == "auc").difference.mean > 0


def test_runs_without_a_shared_unit_say_so(pair: tuple[Run, Run], tmp_path: Path):
    empty = Run.create(load(["name=none", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    (found,) = compared([(pair[0], "a"), (empty, "b")], RESAMPLES)
    assert found.differences == ()
    assert "finished in both" in found.cause


def test_units_of_other_weights_are_not_compared(pair: tuple[Run, Run], tmp_path: Path):
    config = load(["name=b", "units=all", "target.name=net", "target.weights=x.safetensors", f"paths.runs={tmp_path}"])
    other = Run.create(config)
    other.publish(record(unit(0), config))
    (found,) = compared([(pair[0], "a"), (other, "b")], RESAMPLES)
    assert "target.weights" in found.cause


def test_replicates_of_a_unit_are_one_number(pair: tuple[Run, Run], tmp_path: Path):
    one, other = pair[0], run(tmp_path)
    again = replace(record(unit(0), load(["name=b", "units=all", "target.name=net"])), replicate=1, turns=())
    other.publish(again)
    (compared_,) = compared([(one, "a"), (other, "b")], RESAMPLES)
    turns = next(found for found in compared_.differences if found.measure == "turns")
    assert (turns.units, turns.other.mean) == (3, pytest.approx((1.5 + 3 + 3) / 3))


# -- levels ----------------------------------------------------------------------------------------------------------------


def test_levels_are_means_over_units_of_means_over_images(pair: tuple[Run, Run]):
    """Of the images 1 and 4 (then 9 and 4) and 2; the neutral 5 failed and is left out, as in making.evaluation."""
    found = levels(pair[0], RESAMPLES)
    assert found.units == {"layer4": (0, 1)}
    assert found.whole["positive"].mean == pytest.approx((2.5 + 6.5) / 2)
    assert found.whole["neutral"].mean == pytest.approx(2)
    assert found.layers["layer4"] == found.whole
    assert found.whole["positive"].low < 4.5 < found.whole["positive"].high


def test_levels_agree_with_the_difference_of_the_protocol(pair: tuple[Run, Run]):
    made = pair[0]
    found = levels(made, RESAMPLES).whole
    whole = pooled(made, RESAMPLES).measures["difference"]
    assert found["positive"].mean - found["neutral"].mean == pytest.approx(whole.mean)


def test_levels_are_read_back_and_renewed_with_a_new_evaluation(tmp_path: Path):
    made = run(tmp_path)
    assert repr(levels(made, RESAMPLES)) == repr(levels(made, RESAMPLES))
    made.write_evaluation(Owed(unit=unit(2), replicate=0), evaluation(unit(2)))
    assert levels(made, RESAMPLES).units == {"layer4": (0, 1, 2)}


def test_a_run_of_abstentions_has_no_levels(tmp_path: Path):
    made = Run.create(load(["name=none", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    made.publish(sample(unit(0), labels=(), description="", turns=(), stop=Stop.ABSTAIN))
    found = levels(made, RESAMPLES)
    assert (found.units, np.isnan(found.whole["positive"].mean)) == ({}, True)
