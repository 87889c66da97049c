"""The campaign itself: what it calls a repeated turn, and one trial."""

from pathlib import Path

import pytest

from measure.faults import sweep
from measure.faults.campaign import over_repeated, trial, undisturbed
from openmaia.config.loading import load


@pytest.mark.parametrize(
    ("turns", "hits", "is_wrong"),
    [
        ("a0 b0 a1 a1 b0 b1 a2", [2], False),
        ("a0 a0 a1 a1", [1, 3], False),
        ("a0 a0", [], True),
        ("a0 a0", [2], True),
        ("a0 a0 a0", [1], True),
        ("a0 a0 a1 a1", [1], True),
        ("a0 a1 a0", [2], True),
        ("a0 a0 a0", [1, 1], True),
    ],
)
def test_each_disturbance_may_repeat_the_turn_in_progress_of_a_unit(turns: str, hits: list[int], is_wrong: bool):
    carried_out = [(name[0], int(name[1])) for name in turns.split()]
    assert bool(over_repeated(carried_out, hits)) == is_wrong


@pytest.mark.parametrize("overrides", [sweep.ON_THIS_MACHINE, sweep.on_cluster("10.0.0.1:6379")])
def test_the_sweep_has_a_valid_config_on_this_machine_and_on_hosts(tmp_path: Path, overrides: tuple[str, ...]):
    assert load(sweep.command(tmp_path, *overrides)[4:]).name == sweep.NAME


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_worker_costs_the_turn_in_progress():
    done = trial("worker killed", 0, undisturbed())
    assert done.hit and not done.problem, done
