"""Killed at any time, the same command finishes the run without repeating a finished unit."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from openmaia.store.records import Turn
from openmaia.store.run import Owed, Run
from tests.conftest import small_sources
from tests.sweeping import ANSWER
from tests.sweeping import sources as cheap_sources

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "openmaia.cli"]
PATIENCE = 240


def start(sources: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, "run", *sources], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for(condition, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read().decode()[-2000:]
        assert time.monotonic() < until
        time.sleep(0.05)


def finished(run: Run) -> dict[Owed, tuple[int, int]]:
    """Inode and time of each record: a record that is written again gets others."""
    stats = {owed: os.stat(run.record_path(owed)) for owed in run.done()}
    return {owed: (stat.st_ino, stat.st_mtime_ns) for owed, stat in stats.items()}


def clocks(turns: Sequence[Turn]) -> list[tuple[float, float]]:
    """What a turn took: a turn that is repeated takes another time."""
    return [(turn.backbone_seconds, turn.experiment_seconds) for turn in turns]


@pytest.fixture
def sources(settings: list[str], tmp_path: Path) -> list[str]:
    return [*small_sources(settings, tmp_path / "runs"), "ray.num_cpus=2", "ray.investigations=1"]


def test_kill_9_loses_no_finished_unit_and_no_finished_turn(sources: list[str], tmp_path: Path):
    root = tmp_path / "runs" / "demo"
    process = start(sources)
    journal = root / "journal"
    wait_for(lambda: any(journal.rglob("0001.arrow")), process)
    process.kill()
    process.wait()
    run = Run.open(str(root))
    first = next(owed for owed in run.running() if len(run.journal(owed).turns()) >= 2)
    took = clocks(run.journal(first).turns())

    process = start(sources)
    wait_for(lambda: len(run.done()) >= 1, process)
    before = finished(run)
    record = run.record(first)
    assert not record.notes, "the replay did not diverge"
    assert clocks(record.turns)[: len(took)] == took, "the journal's turns were not repeated"
    process.kill()
    process.wait()

    process = start(sources)
    assert process.wait(PATIENCE) == 0
    assert before.items() <= finished(run).items()
    assert run.owed() == []
    assert not list(journal.rglob("*.arrow"))


def test_sigterm_ends_orderly_and_show_tells_what_is_owed(sources: list[str], tmp_path: Path):
    root = tmp_path / "runs" / "demo"
    process = start(sources)
    wait_for(lambda: any((root / "journal").rglob("0000.arrow")), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 3
    assert process.stderr
    assert "the same command goes on" in process.stderr.read().decode()
    shown = subprocess.run([*COMMAND, "show", str(root), "--json"], capture_output=True, check=True, timeout=60)
    state = json.loads(shown.stdout)
    assert state["done"] + state["owed"] + state["running"] == len(state["units"]) == 2
    assert not (root / "driver.json").exists(), "the lease is given back"


# -- signals, on cheap investigations -----------------------------------------------------------------------------------

SLOW = "[CODE]:\n```python\nprint(tools.wait(1.5))\n```"


@pytest.fixture
def slow(tmp_path: Path) -> list[str]:
    """Six investigations of some seconds, two at once."""
    overrides = ["name=slow", "units=all", "tools=[tests.sweeping:wait]", "ray.num_cpus=2", "ray.investigations=2"]
    return [*cheap_sources(tmp_path, [SLOW, SLOW, ANSWER]), *overrides]


def marked(mark: str) -> list[int]:
    """Processes whose environment holds the mark: the command's, and what it started."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]], ids=["SIGTERM", "Ctrl-C twice"])
def test_a_signal_ends_everything_in_time_and_the_same_command_goes_on(
    slow: list[str], tmp_path: Path, signals: list[signal.Signals]
):
    mark = f"OPENMAIA_TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [*COMMAND, "run", *slow],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {name: value},
    )
    root = tmp_path / "runs" / "slow"
    wait_for(lambda: any((root / "journal").rglob("0000.arrow")), process)
    began = time.monotonic()
    for number in signals:
        process.send_signal(number)
        time.sleep(1.0)
    assert process.wait(60) == 3
    assert time.monotonic() - began < 20
    assert process.stderr
    said = process.stderr.read().decode()
    assert "the same command goes on" in said
    assert "Traceback" not in said
    until = time.monotonic() + 20
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.2)
    assert marked(mark) == []

    assert subprocess.run([*COMMAND, "run", *slow], capture_output=True, timeout=PATIENCE, check=False).returncode == 0
    run = Run.open(str(root))
    assert run.owed() == []
    assert not any(run.record(owed).notes for owed in run.done()), "no replay diverged"
