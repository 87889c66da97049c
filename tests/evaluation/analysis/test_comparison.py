"""Runs compared on the units that they share, and their mean activations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate, ClusteredValues, PooledMean, constant, group_mean
from openmaia.evaluation.analysis.comparison import compare_runs, paired_difference, signed_rank_p
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.samples import store_evaluation
from tests.reporting.making import evaluation, record, run

RESAMPLES = 200


def unit(index: int) -> Unit:
    return Unit(target="net", layer="layer4", index=index)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("pair")
    return run(folder / "a"), run(folder / "b")


def estimates(values: list[float]) -> dict[Unit, BootstrapEstimate]:
    return {unit(at): constant(str(unit(at)), value, RESAMPLES) for at, value in enumerate(values)}


def test_difference_is_paired_over_shared_units():
    found = paired_difference("auc", estimates([0.9, 0.8, 0.7]), estimates([0.5, 0.6]))
    assert found is not None
    assert (found.units, found.one.mean) == (2, pytest.approx(0.85))
    assert found.difference.mean == pytest.approx((0.4 + 0.2) / 2)
    assert 0.2 <= found.difference.low <= found.difference.mean <= found.difference.high <= 0.4


def test_signed_rank_p_is_scipys():
    values = np.random.default_rng(0).normal(0.3, 1, 20).tolist()
    assert signed_rank_p(values) == pytest.approx(stats.wilcoxon(values).pvalue)


def test_signed_rank_p_of_one_unit_and_of_equal_runs():
    assert signed_rank_p([0.3]) is None
    assert signed_rank_p([0.0, 1e-12, 0.0]) == 1.0


def test_p_values_are_adjusted_over_all_differences(pair: tuple[Run, Run]):
    (found,) = compare_runs([(pair[0], "a"), (pair[1], "b")], RESAMPLES)
    known = [(one.p, one.adjusted) for one in found.differences if one.p is not None]
    expected = stats.false_discovery_control([p for p, _ in known])
    assert [adjusted for _, adjusted in known] == pytest.approx(expected.tolist())


def test_run_equals_itself(pair: tuple[Run, Run]):
    (found,) = compare_runs([(pair[0], "a"), (pair[0], "b")], RESAMPLES)
    assert found.units == 3
    assert {one.measure for one in found.differences} >= {"auc", "turns", "z_difference", "detection_auprc"}
    for one in found.differences:
        assert (one.difference.mean, one.difference.low, one.difference.high) == (0, 0, 0)


def test_every_pair_of_runs_is_comparedand_units_in_one_alone_are_counted(pair: tuple[Run, Run], tmp_path: Path):
    config = load(["name=b", "units=all", "target.name=net", "target.layers=[layer4]", f"paths.runs={tmp_path}"])
    other = Run.create(config)
    for index in (0, 1, 2, 9):
        other.publish(record(unit(index), config))
    runs = [(pair[0], "a"), (other, "b"), (pair[1], "c")]
    found = compare_runs(runs, RESAMPLES)
    assert [(one.one, one.other, one.alone) for one in found] == [("a", "b", (0, 1)), ("a", "c", (0, 0)), ("b", "c", (1, 0))]  # fmt: skip


def test_difference_is_positive_for_a_better_first_run(pair: tuple[Run, Run], tmp_path: Path):
    good, bad = pair[0], run(tmp_path)
    for at in range(2):
        store_evaluation(bad, InvestigationId(unit=unit(at), replicate=0), evaluation(unit(at), best=-9.0))
    (found,) = compare_runs([(good, "a"), (bad, "b")], RESAMPLES)
    assert next(one for one in found.differences if one.measure == "auc").difference.mean > 0


def test_comparison_without_shared_units_has_a_cause(pair: tuple[Run, Run], tmp_path: Path):
    empty = Run.create(load(["name=none", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    (found,) = compare_runs([(pair[0], "a"), (empty, "b")], RESAMPLES)
    assert found.differences == ()
    assert "finished in both" in found.cause


def test_comparison_refuses_other_weights(pair: tuple[Run, Run], tmp_path: Path):
    config = load(["name=b", "units=all", "target.name=net", "target.weights=x.safetensors", f"paths.runs={tmp_path}"])
    other = Run.create(config)
    other.publish(record(unit(0), config))
    (found,) = compare_runs([(pair[0], "a"), (other, "b")], RESAMPLES)
    assert "target.weights" in found.cause


def test_replicates_are_averaged(pair: tuple[Run, Run], tmp_path: Path):
    one, other = pair[0], run(tmp_path)
    again = replace(record(unit(0), load(["name=b", "units=all", "target.name=net"])), replicate=1, turns=())
    other.publish(again)
    (compared,) = compare_runs([(one, "a"), (other, "b")], RESAMPLES)
    turns = next(found for found in compared.differences if found.measure == "turns")
    assert (turns.units, turns.other.mean) == (3, pytest.approx((1.5 + 3 + 3) / 3))


# -- mean activations ----------------------------------------------------------------------------------------------------------------


def test_activations_are_means_of_unit_means(pair: tuple[Run, Run]):
    """Of the images 1 and 4 (then 9 and 4) and 2; the neutral 5 failed and is left out, as in making.evaluation."""
    found = run_scores(pair[0], RESAMPLES).activations
    assert found.units == {"layer4": [0, 1]}
    assert found.whole["positive"].mean == pytest.approx((2.5 + 6.5) / 2)
    assert found.whole["neutral"].mean == pytest.approx(2)
    assert found.layers["layer4"] == found.whole
    assert found.whole["positive_images"] == found.whole["positive"], "all units have two such images"
    assert found.whole["positive"].low < 4.5 < found.whole["positive"].high


def test_pooling_over_images_counts_images_and_over_units_counts_units():
    """As the published code's figure, and as the papers' tables."""
    units, images = PooledMean(), PooledMean()
    for name, values in (("a", (1.0,)), ("b", (3.0, 5.0, 4.0))):
        group = ClusteredValues.of(values, [f"{name}{number}" for number in range(len(values))])
        units.add(group_mean(name, group, RESAMPLES))
        images.add(group_mean(name, group, RESAMPLES), len(values))
    assert units.interval().mean == pytest.approx((1 + 4) / 2)
    assert images.interval().mean == pytest.approx((1 + 3 + 5 + 4) / 4)
    assert 1 < images.interval().low < 13 / 4 < images.interval().high < 5


def test_activations_agree_with_run_scores(pair: tuple[Run, Run]):
    made = pair[0]
    found = run_scores(made, RESAMPLES).activations.whole
    whole = run_scores(made, RESAMPLES).measures["difference"]
    assert found["positive"].mean - found["neutral"].mean == pytest.approx(whole.mean)


def test_activations_are_cached_until_an_evaluation_changes(tmp_path: Path):
    made = run(tmp_path)
    assert repr(run_scores(made, RESAMPLES).activations) == repr(run_scores(made, RESAMPLES).activations)
    store_evaluation(made, InvestigationId(unit=unit(2), replicate=0), evaluation(unit(2)))
    assert run_scores(made, RESAMPLES).activations.units == {"layer4": [0, 1, 2]}
