"""The test of effects that answers name, on a classifier each of whose units raises one class."""

from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.cli.terminal.effects import show_effects
from openmaia.config.loading import load
from openmaia.core.units import OUTPUT, Unit
from openmaia.evaluation.effects import (
    EFFECTS_FILE,
    EffectTests,
    measure_effects,
    read_effects,
    write_effects,
)
from openmaia.evaluation.run import evaluate_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.runs.run import Run
from tests.helpers.planted_edges import PlantedEdges, network, seen_colour
from tests.helpers.samples import record

COUNT = 12
EDGES = [f"c{number}" for number in PlantedEdges().edges.tolist()]


@pytest.fixture(scope="module")
def target() -> NetworkTarget:
    return NetworkTarget("t", network(), ["units", OUTPUT])


def made(folder: Path, named: list[tuple[str, ...]], services: EvaluationServices, target: NetworkTarget) -> Run:
    run = Run.create(load(["name=demo", "units=all", "target.name=t", f"paths.runs={folder}"]))
    units = [Unit(target="t", layer="units", index=index) for index in range(len(named))]
    run.set_plan(units, 1)
    for unit, effects in zip(units, named, strict=True):
        word = seen_colour(unit.index)
        run.publish(record(unit, labels=(word,), description=word, turns=(), effects=effects))
    evaluate_run(run, replace(services, target=target), EvaluationDesign(n=6, random_words=0))
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, services: EvaluationServices, target: NetworkTarget) -> Run:
    return made(tmp_path_factory.mktemp("own"), [(name,) for name in EDGES[:COUNT]], services, target)


@pytest.fixture(scope="module")
def found(run: Run, target: NetworkTarget) -> EffectTests:
    tests = measure_effects(run, target, 200)
    assert tests is not None
    return tests


def test_planted_effects_are_supported_and_those_of_other_units_are_not(found: EffectTests):
    assert [each.named for each in found.units] == [(name,) for name in EDGES[:COUNT]]
    assert found.supported is not None and found.supported[0] >= 0.9
    assert found.shuffled is not None and found.shuffled[0] <= 0.05
    assert found.auc.mean > 0.95
    assert found.random.low < 0.5 < found.random.high
    assert found.difference.mean == pytest.approx(found.auc.mean - found.random.mean)


def test_wrong_answers_are_not_supported(tmp_path: Path, services: EvaluationServices, target: NetworkTarget):
    wrong = [(name,) for name in (*EDGES[1:COUNT], EDGES[0])]
    tests = measure_effects(made(tmp_path, wrong, services, target), target, 100)
    assert tests is not None and len(tests.units) == COUNT
    assert sum(each.supported for each in tests.units) == 0


def test_only_answers_that_name_classes_are_tested(tmp_path: Path, services: EvaluationServices, target: NetworkTarget):
    named = [("c3", "c4"), (), ("no class",), ("c5",)]
    run = made(tmp_path, named, services, target)
    progress: list[tuple[int, int]] = []
    tests = measure_effects(run, target, 50, lambda done, total: progress.append((done, total)))
    assert tests is not None
    assert [(each.unit.index, each.named) for each in tests.units] == [(0, ("c3", "c4")), (3, ("c5",))]
    assert progress == [(1, 2), (2, 2)]
    other = NetworkTarget("t", network(), [OUTPUT])
    assert measure_effects(run, other, 50) is None
    assert measure_effects(made(tmp_path / "none", [(), ()], services, target), target, 50) is None


def test_answers_that_name_the_same_classes_have_nothing_to_compare(
    tmp_path: Path, services: EvaluationServices, target: NetworkTarget
):
    tests = measure_effects(made(tmp_path, [("c3",), ("c3",)], services, target), target, 50)
    assert tests is not None
    assert [(each.supported, each.p) for each in tests.units] == [(False, 1), (False, 1)]
    assert tests.auc.mean != tests.auc.mean
    write_effects(Run.open(str(tmp_path / "demo")), tests)
    assert repr(read_effects(Run.open(str(tmp_path / "demo")))) == repr(tests)


def test_stored_tests_are_read_and_shown(run: Run, found: EffectTests, capsys: pytest.CaptureFixture[str]):
    show_effects(run)
    assert read_effects(run) is None
    assert capsys.readouterr().out == ""
    write_effects(run, found)
    assert read_effects(run) == found
    show_effects(run)
    shown = capsys.readouterr().out
    assert "units/3" in shown
    assert EDGES[3] in shown
    assert "answers of other units" in shown
    for damaged in (b"[]", b'{"units": [{}]}', b"{", b'{"stamp": 1}'):
        run.files.write(EFFECTS_FILE, damaged)
        assert read_effects(run) is None
