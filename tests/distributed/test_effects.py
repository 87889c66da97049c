"""`system.effect` and `system.drives` on Ray: answered by the target's pool, the same as in one process."""

from pathlib import Path

import pytest

from openmaia.agent import loop
from openmaia.assembly import ConfigAssembly
from openmaia.assembly.single import prepare
from openmaia.core.errors import UsageError
from openmaia.distributed.sweep import UNTESTED, run_sweep
from openmaia.runs.records import Record
from tests.distributed.test_bank import Said
from tests.exemplars.test_bank import code, demo, recorded

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

ASK = code(
    "images = [image for _, image in tools.dataset_exemplars(system)][:4]\n"
    "print(system.effect(images, set='mean'))\n"
    "print(system.drives())"
)


def output(record: Record) -> str:
    return "".join(part for part in record.turns[0].observation if isinstance(part, str))


def test_effects_on_ray_are_those_of_one_process(tmp_path: Path):
    replies = recorded(tmp_path, ASK)
    outcome = run_sweep(
        demo(tmp_path, *replies, "task.effects=true", "ray.num_cpus=2"), ConfigAssembly(), Said(), UNTESTED
    )
    assert not outcome.failed
    (done,) = outcome.run.done()
    record = outcome.run.record(done)
    assert [call.name for call in record.turns[0].calls] == ["dataset_exemplars", "effect", "drives"]
    assert output(record).count("), (") >= 10  # ten classes, and those that the unit raises
    alone = prepare(demo(tmp_path / "alone", *replies, "task.effects=true"), "stage3=1")
    again = loop.investigate(alone.unit, alone.task, alone.services, alone.options)
    assert output(again) == output(record)


def test_units_of_the_output_alone_are_refused_before_anything_starts(tmp_path: Path):
    config = demo(
        tmp_path,
        *recorded(tmp_path, ASK),
        "task.effects=true",
        "ray.num_cpus=2",
        "units=output=1",
        "target.layers=[output]",
    )
    with pytest.raises(UsageError, match="units of output cannot be changed"):
        run_sweep(config, ConfigAssembly(), Said(), UNTESTED)
