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
import ray

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.distributed.sweep import run_sweep
from openmaia.evaluation.analysis.reliability import read_reliability
from openmaia.evaluation.analysis.significance import supported_shares
from openmaia.evaluation.analysis.verdict import run_verdicts
from openmaia.evaluation.truth import read_truth
from openmaia.runs.files import Files
from openmaia.runs.records import Turn
from openmaia.runs.run import TRIALS, InvestigationId, Run
from tests.distributed.test_control import Heard
from tests.helpers.commands import output
from tests.helpers.object_store import ObjectStore, object_store
from tests.helpers.sweeping import ANSWER
from tests.helpers.sweeping import sources as cheap_sources

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "openmaia.cli.main"]
PATIENCE = 240


def start(sources: list[str], mark: str = "") -> subprocess.Popen[bytes]:
    """Starts the command. `mark` is a variable of its environment, as NAME=VALUE."""
    name, _, value = mark.partition("=")
    environment = os.environ | ({name: value} if mark else {})
    return subprocess.Popen(
        [*COMMAND, "run", *sources], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )


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
        "units=mono=0-1",
        "replicates=2",
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


TERMINATED, INTERRUPTED_TWICE = [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]


@pytest.mark.parametrize(
    ("place", "signals", "gives_lease_back"),
    [
        pytest.param("local", TERMINATED, True, id="SIGTERM"),
        pytest.param("local", INTERRUPTED_TWICE, False, id="Ctrl-C twice", marks=pytest.mark.nightly),
        pytest.param("s3", TERMINATED, True, id="SIGTERM, object store", marks=pytest.mark.nightly),
    ],
)
def test_run_that_is_stopped_then_killed_loses_no_finished_turn_and_is_extended_and_scored(
    sources: list[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    place: str,
    signals: list[signal.Signals],
    gives_lease_back: bool,
):
    runs = str(tmp_path / "runs") if place == "local" else request.getfixturevalue("store").url
    sources, root = [*sources, f"paths.runs={runs}"], f"{runs}/slow"
    files = Files(root)

    def journal() -> list[str]:
        return [name for name in files.names("journal") if name.endswith(".turn")]

    # A signal ends everything in time, and all is as the next command needs it.
    mark = f"OPENMAIA_TEST_MARK={uuid.uuid4().hex}"
    process = start(sources, mark)
    wait_for(lambda: any(name.endswith("0001.turn") for name in journal()), process)
    said = stop(process, signals)
    assert "run the same command again to continue" in said
    assert "Traceback" not in said
    until = time.monotonic() + PATIENCE
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.2)
    assert marked(mark) == []
    # The second Ctrl-C ends the command at once, and the same command takes over the lease of a driver that is gone.
    assert not (gives_lease_back and files.exists("driver.json"))
    state = json.loads(output("show", root, "--json"))
    assert state["done"] + state["pending"] + state["running"] == len(state["units"]) == 4
    assert state["pending"] + state["running"] > 0
    run = Run.open(root)
    stopped = journals(run)
    first = next(investigation for investigation, took in stopped.items() if len(took) >= 2)

    # Killed, when one has ended and another is under way.
    process = start(sources)
    wait_for(lambda: first in run.done() and any(journals(run).values()), process)
    process.kill()
    process.wait()
    before, killed = finished(run), journals(run)
    assert first in before

    sources = [*sources, "units=mono=0-2"]  # one more than before
    process = start(sources)
    if place == "local":
        keep_before_scores(process, Path(root), tmp_path / "compared")
    assert process.wait(PATIENCE) == 0
    after = finished(run)
    assert before.items() <= after.items()
    for investigation, took in [*stopped.items(), *killed.items()]:
        assert after[investigation][: len(took)] == took, "the journal's turns were not repeated"
    assert not any(run.record(investigation).notes for investigation in run.done()), "no replay diverged"
    assert len(after) == len(run.evaluated()) == 6
    assert run.pending() == []
    assert not journal()
    if place == "local":
        assert_scored_without_ray(sources, run, tmp_path)


def keep_before_scores(process: subprocess.Popen[bytes], root: Path, folder: Path) -> None:
    """Copies the run directory as a kill would leave it when descriptions are compared, and models and Ray end."""
    wait_for((root / "reliability.json").exists, process)
    process.send_signal(signal.SIGSTOP)
    shutil.copytree(root, folder)
    process.send_signal(signal.SIGCONT)


def assert_scored_without_ray(sources: list[str], run: Run, folder: Path) -> None:
    """A run that was killed before its scores, with and without the comparison, ends as the undisturbed one."""
    undisturbed = results(run)
    root = run.files.local
    assert root is not None
    for is_compared in (True, False):
        shutil.rmtree(root)
        shutil.copytree(folder / "compared", root)
        assert len(run.artifacts(TRIALS)) == 6 and not run.evaluated()
        if not is_compared:
            (root / "reliability.json").unlink()
            (root / "truth.json").unlink()
        view = Heard()
        run_sweep(load(sources), ConfigAssembly(), view)
        assert "all descriptions of slow are tested: neither Ray nor its pools are started" in view.lines
        assert "starting Ray" not in view.lines and not ray.is_initialized()
        assert results(run) == undisturbed
        assert read_reliability(run).agreements and read_truth(run)


def journals(run: Run) -> dict[InvestigationId, list[tuple[float, float]]]:
    """The durations of the turns of each investigation that has not ended."""
    return {investigation: clocks(run.journal(investigation).turns()) for investigation in run.running()}


def stop(process: subprocess.Popen[bytes], signals: Sequence[signal.Signals]) -> str:
    """Sends signals to the command, which must end as one that was stopped. Returns what it said."""
    process.send_signal(signals[0])
    for number in signals[1:]:
        time.sleep(1.0)
        process.send_signal(number)
    assert process.wait(PATIENCE) == 3
    assert process.stderr
    return process.stderr.read().decode()


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


def results(run: Run) -> list[object]:
    """What the end of a run computes."""
    return [run.scores(), run_verdicts(run), read_reliability(run), read_truth(run), supported_shares(run)]
