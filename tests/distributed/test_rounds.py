"""Rounds in a real run, on Ray and without it, and what its evaluation shows."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from openmaia.assembly import ConfigAssembly
from openmaia.config.schema import Config
from openmaia.runs.run import Run
from tests.distributed.test_same_records import SMALL_BATCHES, Quiet, in_process, records
from tests.helpers.investigating import ANSWER, configured, pictures
from tests.helpers.samples import comparable

__all__ = ["pictures"]

pytestmark = pytest.mark.slow

WRONG = ANSWER.replace("1]: red", "1]: circle")


def evaluated(run: Run, column: str) -> dict[str, set[Any]]:
    folder = Path(run.files.path("evaluation"))
    return {
        f"{path.parent.name}/{path.stem}": set(pq.read_table(path)[column].to_pylist())
        for path in folder.rglob("*.parquet")
    }


def test_rounds_and_scores_on_ray_are_those_of_one_process_whatever_the_batches(
    pictures: Path, exemplars_folder: Path, tmp_path: Path, ray_cluster: None
):
    from openmaia.distributed.sweep import run_sweep

    def made(name: str, *overrides: str) -> Config:
        more = (
            f"paths.runs={tmp_path / name}",
            "units=mono=0",
            "task.evidence.rounds=2",
            "evaluate.n=4",
            "evaluate.looks=[]",
            *overrides,
        )
        return configured(pictures, exemplars_folder, tmp_path, (WRONG, WRONG, ANSWER), more)

    alone = in_process(made("alone"))
    outcome = run_sweep(made("ray", *SMALL_BATCHES), ConfigAssembly(), Quiet())
    assert outcome.failed == {}
    assert outcome.run.scores() == alone.scores()
    assert run_sweep(made("ray", *SMALL_BATCHES), ConfigAssembly(), Quiet()).was_complete
    found = records(outcome.run)
    assert [comparable(record) for record in found] == [comparable(record) for record in records(alone)]
    assert [len(record.tests) for record in found] == [3] and found[0].labels == ("red",)
    prompts, digests = evaluated(outcome.run, "prompt"), evaluated(outcome.run, "digest")
    for record in found:
        name = f"{record.unit.layer}/{record.unit.index}-0"
        samples = [sample for test in record.tests for sample in test.samples]
        assert not {sample.prompt for sample in samples} & prompts[name]
        assert not {sample.digest for sample in samples} & set[Any]().union(*digests.values())
        assert len({(sample.prompt, sample.seed) for sample in samples}) == len(samples)
