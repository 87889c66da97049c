"""Rounds in a real run: the searcher on units of known truth, on Ray and without it."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.distributed.test_same_records import Quiet, in_process, records
from tests.helpers.samples import comparable

pytestmark = pytest.mark.slow

Make = Callable[[str], Config]


@pytest.fixture
def make(settings: list[str], tmp_path: Path) -> Make:
    def made(name: str) -> Config:
        return load(
            [
                str(REPOSITORY / "configs/demo.yaml"),
                *settings,
                f"paths.runs={tmp_path / name}",
                "target.kind=scene_units",
                "target.name=scene_units",
                "target.count=2",
                "units=or=0,1:andnot=0,1",
                "pictures.count=200",
                "exemplars.k=8",
                "task.evidence.rounds=2",
                "limits.soft_turns=14",
                "limits.turns=16",
                "evaluate.n=4",
                "evaluate.looks=[]",
                "evaluate.random_words=0",
            ]
        )

    return made


def evaluated(run: Run, column: str) -> dict[str, set[str]]:
    folder = Path(run.files.path("evaluation"))
    return {
        f"{path.parent.name}/{path.stem}": set(pq.read_table(path)[column].to_pylist())
        for path in folder.rglob("*.parquet")
    }


def test_rounds_on_ray_are_those_of_one_process(make: Make, ray_cluster: None):
    from openmaia.distributed.sweep import run_sweep

    alone = in_process(make("alone"))
    outcome = run_sweep(make("ray"), ConfigAssembly(), Quiet())
    assert outcome.failed == {}
    found = records(outcome.run)
    assert [comparable(record) for record in found] == [comparable(record) for record in records(alone)]
    assert any(turn.failed_test for record in found for turn in record.turns)
    prompts, digests = evaluated(outcome.run, "prompt"), evaluated(outcome.run, "digest")
    for record in found:
        name = f"{record.unit.layer}/{record.unit.index}-0"
        samples = [sample for test in record.tests for sample in test.samples]
        assert not {sample.prompt for sample in samples} & prompts[name]
        assert not {sample.digest for sample in samples} & set[str]().union(*digests.values())
        assert len({(sample.prompt, sample.seed) for sample in samples}) == len(samples)
