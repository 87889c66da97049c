"""Rounds in a real run, on Ray and without it, and what its evaluation shows."""

from collections.abc import Callable
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


Make = Callable[..., Config]


@pytest.fixture(scope="module")
def make(pictures: Path, exemplars_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    folder = tmp_path_factory.mktemp("rounds")

    def made(name: str, *overrides: str) -> Config:
        more = (
            f"paths.runs={folder / name}",
            "units=mono=0",
            "task.evidence.rounds=2",
            "evaluate.n=4",
            "evaluate.looks=[]",
            *overrides,
        )
        return configured(pictures, exemplars_folder, folder, (WRONG, WRONG, ANSWER), more)

    return made


@pytest.fixture(scope="module")
def in_one_process(make: Make) -> Run:
    return in_process(make("alone"))


def test_rounds_show_the_agent_no_image_and_no_prompt_of_the_evaluation(in_one_process: Run):
    [record] = records(in_one_process)
    assert len(record.tests) == 3 and record.labels == ("red",)
    prompts, digests = evaluated(in_one_process, "prompt"), evaluated(in_one_process, "digest")
    name = f"{record.unit.layer}/{record.unit.index}-0"
    samples = [sample for test in record.tests for sample in test.samples]
    assert not {sample.prompt for sample in samples} & prompts[name]
    assert not {sample.digest for sample in samples} & set[Any]().union(*digests.values())
    assert len({(sample.prompt, sample.seed) for sample in samples}) == len(samples)


@pytest.mark.nightly
def test_rounds_and_scores_on_ray_are_those_of_one_process_whatever_the_batches(
    make: Make, in_one_process: Run, ray_cluster: None
):
    from openmaia.distributed.sweep import run_sweep

    outcome = run_sweep(make("ray", *SMALL_BATCHES), ConfigAssembly(), Quiet())
    assert outcome.failed == {}
    assert outcome.run.scores() == in_one_process.scores()
    assert run_sweep(make("ray", *SMALL_BATCHES), ConfigAssembly(), Quiet()).was_complete
    found, expected = ([comparable(each) for each in records(run)] for run in (outcome.run, in_one_process))
    assert found == expected
