"""Killed at any time, the same command finishes the run without repeating a finished unit."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from openmaia.evaluation.analysis.reliability import read_reliability
from openmaia.evaluation.analysis.significance import supported_shares
from openmaia.evaluation.analysis.verdict import run_verdicts
from openmaia.evaluation.truth import read_truth
from openmaia.runs.files import Files
from openmaia.runs.records import Turn
from openmaia.runs.run import TRIALS, InvestigationId, Run
from tests.helpers.object_store import ObjectStore, object_store
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


def clocks(turns: Sequence[Turn]) -> list[tuple[float, float]]:
    """What a turn took: a turn that is repeated takes another time."""
    return [(turn.backbone_seconds, turn.experiment_seconds) for turn in turns]


def finished(run: Run) -> dict[InvestigationId, list[tuple[float, float]]]:
    """The durations in each record: a unit that is investigated again has others."""
    return {investigation: clocks(run.record(investigation).turns) for investigation in run.done()}


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


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store(tmp_path) as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.nightly)])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The folder of the runs, on this machine or on an object store."""
    return str(tmp_path / "runs") if request.param == "local" else request.getfixturevalue("store").url


def test_killed_run_loses_no_finished_turn_and_can_be_extended(sources: list[str], runs: str):
    sources = [*sources, f"paths.runs={runs}"]
    root = f"{runs}/slow"
    files = Files(root)

    def journal() -> list[str]:
        return [name for name in files.names("journal") if name.endswith(".turn")]

    process = start(sources)
    wait_for(lambda: any(name.endswith("0001.turn") for name in journal()), process)
    process.kill()
    process.wait()
    run = Run.open(root)
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
    assert not journal()


@pytest.mark.nightly
def test_run_on_an_object_store_is_evaluated_shown_and_reported(tmp_path: Path, store: ObjectStore):
    sources = [*cheap_sources(tmp_path), f"paths.runs={store.url}", "name=far", "units=mono=0-1", "ray.num_cpus=2"]
    for arguments in (["run", *sources], *([verb, f"{store.url}/far"] for verb in ("evaluate", "show", "report"))):
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert "report/index.html" in Files(f"{store.url}/far").names("report")
    written = [request for request in store.requests() if re.match(r"(PUT|POST) \S+/records/\S+\.parquet", request)]
    assert len(set(written)) == 2, "each record is written with one request"


def finish(sources: list[str], folder: Path) -> str:
    """Runs the command to its end, with a folder for the files of Ray. Returns what it said."""
    done = subprocess.run(
        [*COMMAND, "run", *sources],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=os.environ | {"RAY_TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def results(run: Run) -> list[object]:
    """What the end of a run computes."""
    return [run.scores(), run_verdicts(run), read_reliability(run), read_truth(run), supported_shares(run)]


def test_run_killed_before_its_scores_is_scored_without_ray(tmp_path: Path):
    given = ["name=tested", "units=mono=0-1", "replicates=2", "ray.num_cpus=2"]
    finish([*cheap_sources(tmp_path / "whole"), *given], Path("/tmp"))
    undisturbed = results(Run.open(str(tmp_path / "whole/runs/tested")))
    sources, root = [*cheap_sources(tmp_path / "killed"), *given], tmp_path / "killed/runs/tested"

    process = start(sources)
    wait_for((root / "reliability.json").exists, process)  # the descriptions are compared, and the models end
    process.kill()
    process.wait()
    run = Run.open(str(root))
    assert len(run.artifacts(TRIALS)) == 4 and not run.evaluated()
    shutil.copytree(root, tmp_path / "compared")

    (tmp_path / "ray").mkdir()
    for is_compared in (True, False):
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "compared", root)
        if not is_compared:
            (root / "reliability.json").unlink()
            (root / "truth.json").unlink()
        said = finish(sources, tmp_path / "ray")
        assert "all descriptions of tested are tested: neither Ray nor its pools are started" in said
        assert "starting Ray" not in said and not any((tmp_path / "ray").iterdir())
        assert results(run) == undisturbed
        assert read_reliability(run).agreements and read_truth(run)


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
    [
        pytest.param([signal.SIGTERM], True, id="SIGTERM"),
        pytest.param([signal.SIGINT, signal.SIGINT], False, id="Ctrl-C twice", marks=pytest.mark.nightly),
    ],
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
