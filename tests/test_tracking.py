"""W&B as a view: what it is told reads back with its own tools, and nothing that happens to it reaches the run."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from openmaia.agent.attempt import Result
from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.schema import Config
from openmaia.store.run import Owed, Run
from openmaia.tracking import start, tracker
from openmaia.tracking.ledger import Ledger
from openmaia.tracking.messages import Progress, Sample
from openmaia.tracking.series import Series, plain
from openmaia.tracking.tracker import Writer
from openmaia.units import Unit
from tests.report.making import HOSTILE, run

pytest.importorskip("wandb")

COUNTERS = {"requests": 0.0, "batches": 0.0, "batched": 0.0, "busy_seconds": 0.0, "waiting": 3.0, "replicas": 2.0}


def settings(*overrides: str) -> Config:
    sources = ["name=tiny", "units=all", "target.name=net", "tracking.kind=wandb", "tracking.mode=offline"]
    return load([*sources, "tracking.every=0.2", *overrides])


def results(made: Run) -> list[Result]:
    """Of the three finished units, as `drive` would give them, and of the one that failed."""
    found = [Result(owed=_owed(header), summary=header) for header in made.headers()]
    return [*found, *(Result(owed=owed, summary=None, cause=cause) for owed, cause in made.failures().items())]


def _owed(header: dict[str, Any]) -> Owed:
    unit = Unit(target=header["target"], layer=header["layer"], index=header["index"])
    return Owed(unit=unit, replicate=header["replicate"])


def inspected(folder: Path, *options: str) -> str:
    """By wandb's own tool."""
    command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", *options, "--json", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def history(folder: Path) -> list[dict[str, Any]]:
    """The points of one offline run, in their order; what a value holds stands behind dots."""
    lines = [json.loads(line) for line in inspected(folder).splitlines()]
    return [line["history"]["item"] for line in lines if line["type"] == "history"]


def folders(made: Run) -> list[Path]:
    assert made.files.local
    return sorted(made.files.local.glob("wandb/offline-run-*"))


@dataclass(frozen=True)
class Tracked:
    run: Run
    said: list[str]
    history: list[dict[str, Any]]

    @property
    def units(self) -> list[dict[str, Any]]:
        return [row for row in self.history if "unit/number" in row]

    def last(self, key: str) -> Any:
        return [row[key] for row in self.history if key in row][-1]


@pytest.fixture(scope="module", params=["a striped cat", HOSTILE])
def tracked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    """A run that was stopped after one unit and went on with the others."""
    made = run(tmp_path_factory.mktemp("tracked"), text=request.param)
    said: list[str] = []
    first, *others = results(made)
    later = {name: made.files.read(name) or b"" for name in made.files.names("records")[1:]}
    for name in later:
        made.files.delete(name)
    for ended in ([first], others):
        with start(settings(), made, said.append) as told:
            for name, data in later.items() if ended is others else []:
                made.files.write(name, data)
            told.progress("investigations", 0, 4)
            for number, result in enumerate(ended, start=1):
                told.ended(result)
                told.progress("investigations", number, 4)
            told.sample({"backbone": COUNTERS})
            time.sleep(1.5)
            told.sample({"backbone": COUNTERS | {"requests": 40.0, "batches": 10.0, "batched": 40.0}})
        time.sleep(1.1)  # folders of offline runs are named by the second
    points = [point for folder in folders(made) for point in history(folder)]
    return Tracked(run=made, said=said, history=points)


def test_a_resumed_run_is_the_same_run(tracked: Tracked):
    assert len(folders(tracked.run)) == 2
    ids = {json.loads(inspected(folder, "--summary"))["run_id"] for folder in folders(tracked.run)}
    assert ids == {Ledger.open(tracked.run.files, "tiny").id}


def test_every_unit_is_told_once(tracked: Tracked):
    assert sorted(row["unit/number"] for row in tracked.units) == [1, 2, 3]
    assert len({row["unit/name"] for row in tracked.units}) == 3


def test_steps_only_go_up(tracked: Tracked):
    steps = [row["_step"] for row in tracked.history]
    assert steps == sorted(set(steps))


def test_a_unit_is_told_with_its_length_tokens_tools_and_labels(tracked: Tracked):
    header = tracked.run.headers()[0]
    told = next(row for row in tracked.units if row["unit/name"] == f"layer4/{header['index']}")
    assert told["unit/turns"] == 3
    assert told["unit/messages"] == 7
    assert told["unit/prompt_tokens"] == 3000
    assert told["unit/generated_tokens"] == 600
    assert told["unit/seconds"] == 6
    assert told["unit/tools/display"] == 1
    assert told["unit/labels"] == "; ".join(header["labels"])


def test_scores_are_told_once(tracked: Tracked):
    scores = [row["score/auc"] for row in tracked.history if "score/number" in row]
    assert sorted(scores) == sorted(found["auc"] for found in tracked.run.scores().values())


def test_series_hold_progress_pools_failures_and_agents(tracked: Tracked):
    assert tracked.last("investigations/total") == 4
    assert tracked.last("pools/backbone/batch") == 4
    assert tracked.last("pools/backbone/queue") == 3
    assert tracked.last("failures/ServiceError") == 1
    assert tracked.last("agents/used/text2image") == 1.0


def test_the_table_holds_every_unit_with_thumbnails(tracked: Tracked):
    lines = [json.loads(line) for line in inspected(folders(tracked.run)[-1]).splitlines()]
    entries = [line["artifact"]["manifest"]["contents"] for line in lines if line["type"] == "artifact"][-1]
    files = {entry["path"]: Path(entry["local_path"]) for entry in entries}
    table = json.loads(files["units.table.json"].read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert sorted(row["index"] for row in rows) == [0, 1, 2]
    assert rows[0]["labels"] == "; ".join(tracked.run.headers()[0]["labels"])
    for row in rows:
        with Image.open(files[row["exemplars"]["path"]]) as shown:
            assert shown.size == (64, 64)
    assert all(path.is_relative_to(tracked.run.files.path("")) for path in files.values())


def test_all_names_are_plain(tracked: Tracked):
    keys = {key for row in tracked.history for key in row}
    assert all(all(plain(part) == part for part in re.split(r"[/.]", key)) for key in keys)


def test_nothing_was_wrong(tracked: Tracked):
    assert tracked.said == []


def test_the_workspace_is_valid_and_shows_what_was_told(tracked: Tracked):
    workspaces = pytest.importorskip("wandb_workspaces.workspaces")
    from wandb_workspaces.workspaces import internal

    from openmaia.tracking.workspace import make, specification

    text = specification(make(tracked.run))
    view = internal.View.model_validate_json(text)
    shown = workspaces.Workspace._from_model(view)
    assert [section.name for section in shown.sections] == ["Agents", "Progress", "Pools", "Units"]
    told = {key for row in tracked.history for key in row}
    bars = [metric for panel in shown.sections[0].panels[:2] for metric in panel.metrics]
    assert bars
    assert {str(getattr(bar, "name", bar)) for bar in bars} <= told
    assert Ledger.open(tracked.run.files, "tiny").id in text


def test_dashboard_works_without_an_account(tracked: Tracked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    command = [sys.executable, "-m", "openmaia.cli", "dashboard", tracked.run.files.root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "no account" in done.stdout
    assert tracked.run.files.exists("tracking/workspace.json")


# -- what happens to W&B stays there ---------------------------------------------------------------------------------


@contextmanager
def writing(made: Run, said: list[str]) -> Iterator[Writer]:
    with start(settings("tracking.finish_seconds=3"), made, said.append) as told:
        assert isinstance(told, Writer)
        yield told


def below(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z" for pid in pids):
        assert time.monotonic() < deadline, "a process of wandb is left"
        time.sleep(0.1)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("whom", ["its process", "wandb's service"])
def test_the_run_goes_on_when_wandb_dies_or_hangs(tmp_path: Path, number: signal.Signals, whom: str):
    made = run(tmp_path)
    said: list[str] = []
    with writing(made, said) as told:
        pids = below(told.process.pid)
        assert pids
        os.kill(told.process.pid if whom == "its process" else pids[0], number)
        for _ in range(20):
            for result in results(made):
                told.ended(result)
            told.sample({"backbone": COUNTERS})
        began = time.monotonic()
    assert time.monotonic() - began < 12
    assert len([line for line in said if "reports did not reach" not in line]) == 1
    until_gone([told.process.pid, *pids])


def test_a_death_with_reports_still_in_the_pipe_is_said(tmp_path: Path):
    made = run(tmp_path)
    said: list[str] = []
    with writing(made, said) as told:
        os.kill(told.process.pid, signal.SIGSTOP)
        told.sample({"backbone": COUNTERS})
        death = threading.Timer(1, os.kill, (told.process.pid, signal.SIGKILL))
        death.start()
    death.join()
    assert len(said) == 1
    assert "has ended" in said[0]


def test_a_full_queue_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracker, "ROOM", 100)
    made = run(tmp_path)
    said: list[str] = []
    with writing(made, said) as told:
        os.kill(told.process.pid, signal.SIGSTOP)
        for _ in range(20_000):
            told.sample({"backbone": COUNTERS})
    assert told.dropped > 1000
    assert f"tracking: {told.dropped} reports did not reach W&B" in said[-1]


def test_a_ledger_that_cannot_be_written_is_said_once(tmp_path: Path):
    made = run(tmp_path)
    said: list[str] = []
    assert made.files.local
    with writing(made, said) as told:
        while (folder := made.files.local / "tracking").is_dir():
            folder.rename(tmp_path / f"aside {time.monotonic()}")
        folder.write_text("in the way")
        for result in results(made):
            told.ended(result)
    assert len(said) == 1
    assert "could not be written" in said[0]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("tracking.kind=mlflow", "tracking.kind='mlflow' is unknown; give one of none, wandb"),
        ("tracking.mode=later", "tracking.mode='later' is unknown"),
        ("tracking.project='../x?'", "tracking.project='../x\\?': W&B wants"),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, override: str, said: str):
    with pytest.raises(UsageError, match=said), start(settings(override), run(tmp_path), print):
        pass


def test_a_tracker_that_cannot_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    config = settings("tracking.mode=online")
    with pytest.raises(UsageError, match="could not be started: .*wandb login"), start(config, run(tmp_path), print):
        pass


def test_disabled_starts_nothing(tmp_path: Path):
    made = run(tmp_path)
    with start(settings("tracking.mode=disabled"), made, print) as told:
        told.sample({"backbone": COUNTERS})
    assert folders(made) == []


# -- series ----------------------------------------------------------------------------------------------------------


def test_series_are_differences_of_two_samples():
    series = Series({"target": 16})
    series.sample(Sample(counters={"target": {**COUNTERS, "requests": 100, "batches": 10, "batched": 100}}, time=0))
    now = {
        **COUNTERS,
        "requests": 180,
        "batches": 20,
        "batched": 180,
        "busy_seconds": 10.0,
        "cache_hits": 3,
        "cache_misses": 1,
    }
    found = series.sample(Sample(counters={"target": now}, time=10))
    assert found["pools/target/requests_per_second"] == 8
    assert found["pools/target/batch"] == 8
    assert found["pools/target/occupancy"] == 0.5
    assert found["pools/target/utilisation"] == 0.5
    assert found["pools/target/hit_share"] == 0.75


def test_a_pool_that_was_started_again_counts_from_nothing():
    series = Series({})
    series.sample(Sample(counters={"target": {"requests": 100}}, time=0))
    found = series.sample(Sample(counters={"target": {"requests": 20}}, time=10))
    assert found["pools/target/requests_per_second"] == 2


def test_rate_and_time_left_are_of_this_session():
    series = Series({})
    series.progress(Progress(stage="investigations", done=50, total=100, time=0))
    series.progress(Progress(stage="investigations", done=60, total=100, time=60))
    found = series.values(120)
    assert found["investigations/per_minute"] == 5
    assert found["investigations/eta_minutes"] == 8
