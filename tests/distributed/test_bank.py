"""The bank on Ray: drawn by the generator's pool, measured by the workers of exemplars, the same as in one process."""

from pathlib import Path

import pytest

from openmaia.assembly import ConfigAssembly
from openmaia.assembly.single import prepare
from openmaia.config.schema import Config
from openmaia.distributed.sweep import UNTESTED, run_sweep
from openmaia.runs.records import Did, Record
from tests.exemplars.test_bank import LOOK, recorded, with_bank

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


class Said:
    def __init__(self) -> None:
        self.lines = list[str]()
        self.stages = set[str]()

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        self.stages.add(stage)


def swept(config: Config) -> tuple[Record, Said]:
    said = Said()
    outcome = run_sweep(config, ConfigAssembly(), said, UNTESTED)
    assert not outcome.failed
    (done,) = outcome.run.done()
    return outcome.run.record(done), said


def test_a_bank_on_ray_is_that_of_one_process_and_is_used_again(tmp_path: Path):
    replies = recorded(tmp_path, LOOK)
    config = with_bank(tmp_path, *replies, "ray.num_cpus=2", "pools.generator.max_batch=8")
    first, said = swept(config)
    assert any("are drawn once" in line for line in said.lines)
    assert {"bank", "measuring the bank"} <= said.stages
    looked = first.turns[0].calls[0].entries
    assert [entry.did for entry in looked] == [Did.BANK] * 6

    again, said = swept(with_bank(tmp_path, *replies, "ray.num_cpus=2", "name=again"))
    assert not any(line.startswith("bank:") for line in said.lines)
    assert "measuring the bank" not in said.stages
    assert again.turns[0].output_digest == first.turns[0].output_digest

    alone = prepare(with_bank(tmp_path / "alone", *replies), "stage3=1")
    assert alone.services.bank is not None
    mine = alone.services.bank.read(alone.unit)[:3]
    assert [each.prompt for each in mine] == [entry.prompt for entry in looked[:3]]
    assert [each.exemplar.activation for each in mine] == pytest.approx(
        [entry.activation["value"] for entry in looked[:3] if entry.activation], rel=1e-3
    )
