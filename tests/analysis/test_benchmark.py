"""Agents on units of known truth: the chosen units, and the scores of a run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openmaia.analysis.benchmark import TABLE_MEASURES, score_agent
from openmaia.assembly.benchmark import benchmark_configs
from openmaia.core.errors import UsageError
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.agreement import WordOverlap
from openmaia.evaluation.run import evaluate_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.runs.records import Stop
from openmaia.runs.run import Run
from tests.evaluation.conftest import generator, services
from tests.evaluation.test_run import make_run
from tests.helpers.samples import record, turn

__all__ = ["generator", "services"]

RED, GREEN, STRIPES = (Unit(target="t", layer="mono", index=index) for index in (0, 1, 3))


@pytest.fixture
def run(tmp_path: Path, services: EvaluationServices) -> Run:
    """One exact label that the test supports, one wrong label, one abstention."""
    found = make_run(tmp_path, {RED: ("red",), GREEN: ("blue",), STRIPES: ()})
    truths = {RED: ("red",), GREEN: ("green",), STRIPES: ("stripes",)}
    known = replace(services, similarities=[WordOverlap()], truths=truths)
    evaluate_run(found, known, EvaluationDesign(n=4, random=0, random_words=8))
    return found


def test_shares_are_those_of_all_units(run: Run):
    found = score_agent(run, 100)
    assert [*found] == [each.name for each in TABLE_MEASURES]
    means = {name: each.mean for name, each in found.items() if each}
    assert means["exact"] == means["recall"] == pytest.approx(1 / 3) and means["precision"] == 0.5
    assert means["wrong"] <= means["supported"] < 1
    assert (found["exact"].low, found["exact"].high) == pytest.approx((0.061, 0.792), abs=1e-3)  # type: ignore[union-attr]


def test_without_tests_it_is_not_known_what_they_support(tmp_path: Path):
    found = score_agent(make_run(tmp_path, {RED: ("red",), STRIPES: ()}), 100)
    assert found["supported"] is found["wrong"] is None


def spending(tmp_path: Path, unit: Unit, **services: ServiceUsage) -> Any:
    return record(
        unit, turns=(turn(spent=services, prompt_tokens=10, generated_tokens=5),), stop=Stop.ABSTAIN, labels=()
    )


def test_costs_are_means_over_units_and_unknown_prices_are_no_price(tmp_path: Path):
    found = make_run(tmp_path, {})
    found.set_plan([RED, GREEN], 1)
    drawn = ServiceUsage(requests=8, gpu_seconds=4.0, dollars=0.5)
    found.publish(spending(tmp_path, RED, generator=drawn, editor=ServiceUsage(requests=2)))
    found.publish(spending(tmp_path, GREEN, target=ServiceUsage(requests=30, gpu_seconds=1.0)))
    values = score_agent(found, 100)
    means = {name: each and each.mean for name, each in values.items()}
    assert [means[name] for name in ("images", "tokens", "gpu_seconds", "dollars")] == [5, 15, 2.5, 0.25]
    assert values["false_alarms"] is None
    found.set_plan([RED, GREEN, STRIPES], 1)
    found.publish(spending(tmp_path, STRIPES, backbone=ServiceUsage(requests=1, unpriced=1)))
    assert score_agent(found, 100)["dollars"] is None


def configs(tmp_path: Path, count: int, *agents: str, known: str = "scene-graphs") -> dict[str, Any]:
    return benchmark_configs(agents, known, [f"paths.runs={tmp_path}"], count)


def test_agents_get_the_same_units_and_more_units_are_these_and_others(tmp_path: Path):
    few, more = (configs(tmp_path, count, "searcher", "searcher-bank") for count in (7, 12))
    assert few["searcher"].units == few["searcher-bank"].units and few["searcher"].name != few["searcher-bank"].name
    assert (few["searcher"].bank.images, few["searcher-bank"].bank.images) == (0, 1000)
    sets = [
        {
            (layer, index)
            for part in each["searcher"].units.split(":")
            for layer, _, own in [part.partition("=")]
            for index in own.split(",")
        }
        for each in (few, more)
    ]
    assert sets[0] < sets[1] and [*map(len, sets)] == [7, 12]
    assert {layer for layer, _ in sets[0]} == {"one", "pair", "or", "and", "andnot"}


@pytest.mark.parametrize(
    ("count", "agents", "known", "said"),
    [
        (7, ("searcher", "configs/agents/searcher.yaml"), "scene-graphs", "named twice"),
        (5000, ("searcher",), "scene-graphs", "at most --units=200"),
        (7, ("serching",), "scene-graphs", "expected the name or the file of a config"),
        (7, ("units=all",), "scene-graphs", "expected the name or the file of a config"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, count: int, agents: tuple[str, ...], known: str, said: str):
    with pytest.raises(UsageError, match=said):
        configs(tmp_path, count, *agents, known=known)
