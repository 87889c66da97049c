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

from openmaia.runs.records import Turn
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.sweeping import ANSWER
from tests.helpers.sweeping import sources as cheap_sources

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "openmaia.cli.main"]
PATIENCE = 240


def start(sources: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, "run", *sources], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for(condition, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read().decode()[-2000:]
        assert time.monotonic() < until
        time.sleep(0.05)


def finished(run: Run) -> dict[InvestigationId, tuple[int, int]]:
    """Inode and time of each record: a record that is written again gets others."""
    stats = {investigation: os.stat(run.record_path(investigation)) for investigation in run.done()}
    return {investigation: (stat.st_ino, stat.st_mtime_ns) for investigation, stat in stats.items()}


def clocks(turns: Sequence[Turn]) -> list[tuple[float, float]]:
    """What a turn took: a turn that is repeated takes another time."""
    return [(turn.backbone_seconds, turn.experiment_seconds) for turn in turns]


MEASURES = """[CODE]:
```python
values, images = system.call_neuron(tools.text2image(["a red square"]))
print(values, tools.wait(1.0))
```"""


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    """Four investigations of some seconds, two at once."""
    overrides = [
        "name=slow",
        "units=mono=0-3",
        "tools=[tests.helpers.sweeping:wait]",
        "ray.num_cpus=2",
        "ray.investigations=2",
    ]
    return [*cheap_sources(tmp_path, [MEASURES, MEASURES, MEASURES, ANSWER]), *overrides]


def test_kill_9_loses_no_finished_unit_and_no_finished_turn_and_a_unit_can_be_added(sources: list[str], tmp_path: Path):
    root = tmp_path / "runs" / "slow"
    process = start(sources)
    journal = root / "journal"
    wait_for(lambda: any(journal.rglob("0001.turn")), process)
    process.kill()
    process.wait()
    run = Run.open(str(root))
    first = next(investigation for investigation in run.running() if len(run.journal(investigation).turns()) >= 2)
    took = clocks(run.journal(first).turns())

    process = start(sources)
    wait_for(lambda: first in run.done(), process)
    before = finished(run)
    record = run.record(first)
    assert not record.notes, "the replay did not diverge"
    assert clocks(record.turns)[: len(took)] == took, "the journal's turns were not repeated"
    process.kill()
    process.wait()

    process = start([*sources, "units=mono=0-4"])  # one more than before
    assert process.wait(PATIENCE) == 0
    assert before.items() <= finished(run).items()
    assert len(finished(run)) == len(run.evaluated()) == 5
    assert run.pending() == []
    assert not list(journal.rglob("*.turn"))


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


@pytest.mark.parametrize(
    ("signals", "gives_lease_back"),
    [([signal.SIGTERM], True), ([signal.SIGINT, signal.SIGINT], False)],
    ids=["SIGTERM", "Ctrl-C twice"],
)
def test_a_signal_ends_everything_in_time_and_the_same_command_goes_on(
    sources: list[str], tmp_path: Path, signals: list[signal.Signals], gives_lease_back: bool
):
    mark = f"OPENMAIA_TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [*COMMAND, "run", *sources],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {name: value},
    )
    root = tmp_path / "runs" / "slow"
    wait_for(lambda: any((root / "journal").rglob("0000.turn")), process)
    began = time.monotonic()
    for number in signals:
        process.send_signal(number)
        time.sleep(1.0)
    assert process.wait(60) == 3
    assert time.monotonic() - began < 20
    assert process.stderr
    said = process.stderr.read().decode()
    assert "run the same command again to continue" in said
    assert "Traceback" not in said
    until = time.monotonic() + 20
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.2)
    assert marked(mark) == []
    # The second Ctrl-C ends the command at once, and the same command takes over the lease of a driver that is gone.
    assert not (gives_lease_back and (root / "driver.json").exists())
    shown = subprocess.run([*COMMAND, "show", str(root), "--json"], capture_output=True, check=True, timeout=60)
    state = json.loads(shown.stdout)
    assert state["done"] + state["pending"] + state["running"] == len(state["units"]) == 4
    assert state["pending"] + state["running"] > 0

    assert (
        subprocess.run([*COMMAND, "run", *sources], capture_output=True, timeout=PATIENCE, check=False).returncode == 0
    )
    run = Run.open(str(root))
    assert run.pending() == []
    assert not any(run.record(investigation).notes for investigation in run.done()), "no replay diverged"
