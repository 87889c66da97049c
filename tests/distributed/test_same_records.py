"""The same config gives the same records wherever it runs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from openmaia.agent.loop import investigate_and_publish
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import ConfigAssembly, datasets, exemplars, investigations, targets
from openmaia.assembly.evaluation import design, evaluation_services
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.selection import select
from openmaia.core.services import Services
from openmaia.evaluation.run import evaluate_run
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.records import Record, Stop
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.samples import comparable
from tests.helpers.stored_figures import assert_stored
from tests.helpers.sweeping import sources

pytestmark = pytest.mark.slow

SMALL_BATCHES = [f"pools.{role}.max_batch=3" for role in ("target", "generator", "editor", "backbone")]


class Quiet:
    def say(self, line: str) -> None: ...

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None: ...


def in_process(config: Config) -> Run:
    """Investigates the units of a config in this process, and tests the descriptions."""
    run, store, services = investigated(config)
    found = evaluation_services(
        config, services.generator, services.target, store=store, dataset=datasets.image_dataset(config)
    )
    evaluate_run(run, found, design(config))
    return run


def investigated(config: Config) -> tuple[Run, ExemplarStore, Services]:
    target = targets.target(config)
    run = Run.create(config)
    run.set_plan(select(config.units, target.info()).units, config.replicates)
    units = [investigation.unit for investigation in run.plan()]
    store = exemplars.make(config, [unit.layer for unit in units])
    services = investigations.services(config, store)
    for investigation in run.plan():
        result = investigate_and_publish(
            investigation, load_task("description"), services, investigations.options(config), run
        )
        assert result.summary is not None, result.cause
    return run, store, services


def records(run: Run) -> list[Record]:
    return [run.record(investigation) for investigation in sorted(run.done())]


def test_an_investigation_ends_with_an_answer_and_what_led_to_it(alone: Run):
    for record in records(alone):
        assert record.stop in (Stop.ANSWER, Stop.ABSTAIN)
        assert record.turns[0].calls[0].name == "dataset_exemplars"
        assert {"text2image", "call_neuron"} <= set(record.tool_calls)
        assert "no language model" in record.backbone
        assert record.sandbox in ("full", "degraded")


def test_verdicts_and_scores_are_the_stored_ones(alone: Run):
    assert_stored([alone], Path(__file__).with_name("same_records.csv"))


@pytest.mark.nightly
def test_ray_gives_the_same_records_and_scores_in_batches_of_another_size(
    alone: Run, small: Callable[..., Config], ray_cluster: None
):
    """Of a network. test_rounds.py compares units that are computed."""
    from openmaia.distributed.sweep import run_sweep

    expected = [comparable(record) for record in records(alone)]
    outcome = run_sweep(small(*SMALL_BATCHES, runs="batch-3"), ConfigAssembly(), Quiet())
    assert outcome.failed == {}
    assert [comparable(record) for record in records(outcome.run)] == expected
    assert outcome.run.scores() == alone.scores()
    assert run_sweep(small(*SMALL_BATCHES, runs="batch-3"), ConfigAssembly(), Quiet()).was_complete


@pytest.mark.nightly
def test_records_do_not_depend_on_batches_nodes_or_how_many_run_at_once(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.same_records", str(tmp_path)],
        env=os.environ | {"RAY_AUTH_MODE": "token"}, cwd=REPOSITORY, capture_output=True, text=True, timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    nodes = {"one at once": 1, "24 at once": 1, "24 at once on three nodes": 3}
    assert found == {
        name: {"records": 24, "different": 0, "scores": 24, "different scores": 0, "nodes": count}
        for name, count in nodes.items()
    }


def test_no_pixel_of_an_evaluation_comes_from_a_picture_that_the_agent_saw(alone: Run):
    for investigation, record in zip(sorted(alone.done()), records(alone), strict=True):
        # The images of the confirmation are drawn after the answer, from the test split, and no agent sees them.
        seen = {source for turn in record.turns for image in turn.images.values() for source in image.sources}
        table = pq.read_table(
            Path(alone.files.path(f"evaluation/{record.unit.target}/{record.unit.layer}"))
            / (f"{investigation.unit.index}-0.parquet")
        )
        used = {source for sources in table["sources"].to_pylist() for source in sources or []}
        assert seen
        assert not seen & used


def test_a_replay_of_a_record_on_the_same_unit_gives_the_same_record(tmp_path: Path):
    """Of a unit that is computed, which is measured faster than one of a network."""
    own = [*sources(tmp_path), "units=mono=0"]
    run, *_ = investigated(load([*own, "backbone.kind=scripted"]))
    (record,), (investigation,) = records(run), run.done()
    replay = [f"backbone.record={run.record_path(investigation)}", f"paths.runs={tmp_path / 'again'}"]
    (again,) = records(investigated(load([*own, *replay]))[0])
    assert comparable(again)["turns"] == comparable(record)["turns"] and len(record.turns) > 2
    assert again.backbone == "replay" != record.backbone
