"""W&B as a view: what it is told reads back with its own tools, and nothing that happens to it reaches the run."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from openmaia.agent.loop import InvestigationResult
from openmaia.analysis.series import LiveSeries
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.evaluation.analysis.verdict import TESTED, Verdict, run_verdicts
from openmaia.evaluation.metric import columns
from openmaia.reporting.tracking import start
from openmaia.reporting.tracking.wandb_run import AGENT, make_plain, read_state
from openmaia.runs.run import InvestigationId, Run
from tests.helpers import samples
from tests.reporting.making import HOSTILE, run

pytest.importorskip("wandb")

COUNTERS = {"requests": 0.0, "batches": 0.0, "batched": 0.0, "busy_seconds": 0.0, "waiting": 3.0, "replicas": 2.0}


def settings(*overrides: str) -> Config:
    sources = ["name=tiny", "units=all", "target.name=net", "tracking.kind=wandb", "tracking.mode=offline"]
    return load([*sources, "tracking.every=0.2", *overrides])


def results(made: Run) -> list[InvestigationResult]:
    """The three finished investigations, and the one that failed."""
    done = [InvestigationResult(investigation=InvestigationId.of_row(one), summary=one) for one in made.headers()]
    failed = [
        InvestigationResult(investigation=key, summary=None, cause=cause) for key, cause in made.failures().items()
    ]
    return [*done, *failed]


def inspected(folder: Path, *options: str) -> str:
    """Returns what wandb's own tool reads in an offline run."""
    command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", *options, "--json", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def history(folder: Path) -> list[dict[str, Any]]:
    """Returns the points of an offline run in their order."""
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


@pytest.fixture(scope="module", params=[pytest.param("a striped cat", marks=pytest.mark.slow), HOSTILE])
def tracked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    """A run that was stopped after one unit and went on with the others."""
    made = run(tmp_path_factory.mktemp("tracked"), text=request.param)
    said: list[str] = []
    first, *others = results(made)
    later = {name: made.files.read(name) or b"" for name in made.files.names("records")[1:]}
    for name in later:
        made.files.delete(name)
    for ended in ([first], others):
        with start(settings(), made, said.append) as tracker:
            assert tracker
            for name, data in later.items() if ended is others else []:
                made.files.write(name, data)
            tracker.progress("investigations", 0, 4)
            for number, result in enumerate(ended, start=1):
                tracker.ended(result)
                tracker.progress("investigations", number, 4)
            tracker.sample({"backbone": COUNTERS})
            time.sleep(1.0)
            tracker.sample({"backbone": COUNTERS | {"requests": 40.0, "batches": 10.0, "batched": 40.0}})
        time.sleep(1.1)  # the folders of offline runs are named by the second
    return Tracked(run=made, said=said, history=[point for folder in folders(made) for point in history(folder)])


def test_resumed_run_keeps_its_id(tracked: Tracked):
    assert len(folders(tracked.run)) == 2
    state = read_state(tracked.run)
    assert state
    assert {json.loads(inspected(folder, "--summary"))["run_id"] for folder in folders(tracked.run)} == {state[0]}


def test_unit_is_told_once(tracked: Tracked):
    assert sorted(row["unit/number"] for row in tracked.units) == [1, 2, 3]
    assert len({row["unit/name"] for row in tracked.units}) == 3


def test_steps_only_go_up(tracked: Tracked):
    steps = [row["_step"] for row in tracked.history]
    assert steps == sorted(set(steps))


def test_unit_has_length_tokens_tools_and_labels(tracked: Tracked):
    header = tracked.run.headers()[0]
    point = next(row for row in tracked.units if row["unit/name"] == f"layer4/{header['index']}")
    assert (point["unit/turns"], point["unit/messages"], point["unit/seconds"]) == (3, 7, 6)
    assert (point["unit/prompt_tokens"], point["unit/generated_tokens"]) == (3000, 600)
    assert point["unit/tools/display"] == 1
    assert point["unit/labels"] == "; ".join(header["labels"])


def test_series_hold_progress_pools_failures_and_agents(tracked: Tracked):
    assert tracked.last("investigations/total") == 4
    assert tracked.last("pools/backbone/batch") == 4
    assert tracked.last("pools/backbone/queue") == 3
    assert tracked.last("failures/ServiceError") == 1
    assert tracked.last("agents/used/text2image") == 1.0
    assert tracked.last("agents/used/edit_images") == 0
    headers = tracked.run.headers()
    assert tracked.last("agents/experiments_per_unit") == sum(one["experiments"] for one in headers) / len(headers) > 0


def table(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """Returns the rows of the last table of an offline run, and its files by their names."""
    lines = [json.loads(line) for line in inspected(folder).splitlines()]
    entries = [line["artifact"]["manifest"]["contents"] for line in lines if line["type"] == "artifact"][-1]
    files = {entry["path"]: Path(entry["local_path"]) for entry in entries}
    content = json.loads(files["units.table.json"].read_text())
    return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]], files


def test_table_holds_every_unit_with_scores_and_thumbnails(tracked: Tracked):
    rows, files = table(folders(tracked.run)[-1])
    assert sorted(row["index"] for row in rows) == [0, 1, 2]
    labels = {one["index"]: "; ".join(one["labels"]) for one in tracked.run.headers()}
    assert {row["index"]: row["labels"] for row in rows} == labels
    order = [list(Verdict).index(Verdict(row["verdict"])) for row in rows]
    assert order == sorted(order) and all(row["mark"] in "🟢🟡🔴⚪⚫❌" for row in rows)
    scores = {each.unit.index: found for each, found in tracked.run.scores().items()}
    for row in rows:
        found = scores.get(row["index"], {})
        names = ("auc", "auc_all", "z_positive", "z_exemplars")
        assert [row[name] for name in names] == [found.get(name) for name in names]
    for row in rows:
        with Image.open(files[row["exemplars"]["path"]]) as shown:
            assert shown.size == (64, 64)
    assert all(path.is_relative_to(tracked.run.files.path("")) for path in files.values())


def summary(folder: Path) -> dict[str, Any]:
    """Returns the summary that an offline run sets."""
    told: dict[str, Any] = {}
    for line in inspected(folder).splitlines():
        told |= json.loads(line).get("summary", {}).get("update", {})
    return told


def test_summary_holds_the_mean_of_each_metric(tracked: Tracked):
    told = summary(folders(tracked.run)[-1])
    scores = run_scores(tracked.run, tracked.run.config()["evaluate"]["bootstrap"])
    expected = {f"metrics/{name}": scores.measures[name].mean for name, count in scores.counts.items() if count}
    expected |= {f"measured/{name}": float(count) for name, count in scores.counts.items() if count}
    assert (
        {"metrics/auc", "metrics/auc_all", "measured/auc_all", "metrics/z_positive"} <= expected.keys() <= told.keys()
    )
    for name, value in expected.items():
        assert told[name] == pytest.approx(value) == tracked.last(name)


def test_summary_holds_verdict_counts_and_cost(tracked: Tracked):
    told = summary(folders(tracked.run)[-1])
    verdicts = Counter(each.verdict for each in run_verdicts(tracked.run).values())
    assert {verdict: told[f"verdicts/{verdict.replace(' ', '_')}"] for verdict in Verdict} == {
        verdict: verdicts[verdict] for verdict in Verdict
    }
    assert told["verdicts/all"] == 5 and told["verdicts/tested"] == sum(verdicts[verdict] for verdict in TESTED)
    assert told["cost/gpu_seconds"] == 0
    assert tracked.last("agents/mean_turns") == 3
    assert tracked.last("agents/sent_back_per_unit") == 0


def test_each_metric_of_a_unit_is_a_point_told_once(tracked: Tracked):
    points = {row["score/name"]: row for row in tracked.history if "score/number" in row}
    scores = tracked.run.scores()
    assert [row["score/number"] for row in tracked.history if "score/number" in row] == list(range(1, len(scores) + 1))
    for investigation, values in scores.items():
        point = points[investigation.name]
        expected = {f"score/{name}": values[name] for name in columns() if values.get(name) is not None}
        assert "score/auc_all" in expected
        assert {name: point[name] for name in expected} == pytest.approx(expected)


def test_running_investigations_show_their_turns(tmp_path: Path):
    """Turns of a journal are told while the investigation runs, and count once when its record is there."""
    made = run(tmp_path)
    done, waiting = results(made)[0], made.pending()[-1]
    with start(settings(), made, print) as tracker:
        assert tracker
        for index in range(4):
            made.journal(waiting).append(samples.turn(index))
            time.sleep(1.0)  # many times as long as the tracker waits between two looks
        made.journal(done.investigation).append(samples.turn())
        tracker.ended(done)
        time.sleep(0.5)
    points = [point for folder in folders(made) for point in history(folder) if "turns/completed" in point]
    assert {point["turns/of_running"] for point in points} >= {2, 3, 4}
    assert [point["turns/completed"] for point in points] == sorted(point["turns/completed"] for point in points)
    recorded = sum(header["turns"] for header in made.headers())
    last = points[-1]
    assert (last["turns/completed"], last["turns/of_running"], last["turns/longest_running"]) == (recorded + 4, 4, 4)


def test_unit_has_its_gpu_seconds(tmp_path: Path):
    made = run(tmp_path)
    made.publish(samples.record())
    with start(settings(), made, print):
        pass
    spent = {
        point["unit/name"]: point["unit/gpu_seconds"] for point in history(folders(made)[0]) if "unit/name" in point
    }
    assert spent.pop("layer4/7") == 2 * (2.5 + 0.0625)
    assert set(spent.values()) == {0}
    assert [row["gpu_seconds"] for row in table(folders(made)[0])[0] if row["index"] == 7] == [5.125]


def test_names_of_metrics_are_plain(tracked: Tracked):
    keys = {key for row in tracked.history for key in row}
    assert all(all(make_plain(part) == part for part in re.split(r"[/.]", key)) for key in keys)


def test_healthy_tracker_says_nothing(tracked: Tracked):
    assert tracked.said == []


def test_offline_data_of_a_run_on_an_object_store_are_kept_and_named(tmp_path: Path):
    said: list[str] = []
    made = run(f"fsspec+memory://{tmp_path}/runs")
    with start(settings(f"paths.cache={tmp_path}/cache"), made, said.append) as tracker:
        assert tracker
    (kept,) = (tmp_path / "cache/tracking").glob("tiny-*/wandb/offline-run-*")
    assert [row for row in history(kept) if "unit/number" in row]
    (note,) = said
    assert f"`wandb sync {kept.parent}/offline-run-*`" in note


def test_workspace_is_valid_and_shows_what_was_told(tracked: Tracked):
    workspaces = pytest.importorskip("wandb_workspaces.workspaces")
    from wandb_workspaces.workspaces import internal

    from openmaia.reporting.tracking.workspace import make_workspace, to_json

    text = to_json(make_workspace(tracked.run))
    shown: Any = workspaces.Workspace._from_model(internal.View.model_validate_json(text))
    assert [section.name for section in shown.sections] == ["Scores", "Agents", "Progress", "Pools", "Units"]
    told = {key for row in tracked.history for key in row}
    bars = [metric for panel in shown.sections[1].panels[:2] for metric in panel.metrics]
    assert bars
    scored = {str(getattr(y, "name", y)) for panel in shown.sections[0].panels[-3:] for y in panel.y}
    assert {"score/auc", "score/z_positive"} <= scored & told
    assert {str(getattr(bar, "name", bar)) for bar in shown.sections[0].panels[0].metrics} <= told
    assert {str(getattr(bar, "name", bar)) for bar in bars} <= told
    state = read_state(tracked.run)
    assert state and state[0] in text


def test_dashboard_works_without_an_account(tracked: Tracked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    command = [sys.executable, "-m", "openmaia.cli.main", "export", "dashboard", tracked.run.files.root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "no account" in done.stdout
    assert tracked.run.files.exists("tracking/workspace.json")


@pytest.fixture
def compared(tmp_path: Path) -> list[Run]:
    """Two runs with offline data of W&B."""
    made = [run(tmp_path / name, name=name) for name in ("mistral", "gemma")]
    for each in made:
        with start(settings(f"name={each.name}"), each, print) as tracker:
            assert tracker
    return made


def test_comparison_reads_back_from_its_file_and_shows_what_the_offline_runs_hold(
    compared: list[Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    from wandb_workspaces.workspaces import Workspace, internal

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    file = tmp_path / "both.json"
    roots = [each.files.root for each in compared]
    command = [sys.executable, "-m", "openmaia.cli.main", "export", "dashboard", *roots, "--to", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shown: Any = Workspace._from_model(internal.View.model_validate_json(file.read_text()))
    by_backbone, by_run = shown.sections
    assert (by_backbone.name, by_run.name) == ("Backbones", "Runs")
    ids = [state[0] for each in compared if (state := read_state(each))]
    assert shown.runset_settings.filters == f'Metric("ID") in {ids}' and len(set(ids)) == 2

    bars = [panel for panel in by_backbone.panels if type(panel).__name__ == "BarPlot"]
    drawn = {str(getattr(metric, "name", metric)) for panel in bars for metric in panel.metrics}
    assert {"metrics/auc", "metrics/positive", "metrics/neutral", "agents/mean_turns", "agents/used/display"} <= drawn
    assert {str(getattr(panel.groupby, "name", panel.groupby)) for panel in bars} == {AGENT}
    assert "| Claude Sonnet 4 | more than 10 |" in by_backbone.panels[-1].markdown
    for each in compared:
        (folder,) = folders(each)
        told = {key for point in history(folder) for key in point}
        assert drawn <= told
        assert {column.removeprefix("summary:") for column in shown.runset_settings.pinned_columns[2:]} <= told
        assert config_of(folder)[AGENT] == "scripted (no language model; eyes: efficientnet_lite2)"


def config_of(folder: Path) -> dict[str, Any]:
    """Returns the config that an offline run sets."""
    told: dict[str, Any] = {}
    for line in inspected(folder).splitlines():
        told |= json.loads(line).get("run", {}).get("config", {}).get("update", {})
    return told


def test_comparison_of_what_no_workspace_shows_is_refused(compared: list[Run], tmp_path: Path):
    from openmaia.reporting.tracking.workspace import make_comparison

    with pytest.raises(UsageError, match="given twice"):
        make_comparison([compared[0], compared[0]])
    with pytest.raises(UsageError, match="was not tracked"):
        make_comparison([compared[0], run(tmp_path / "untracked")])
    config = yaml.safe_load((Path(compared[1].files.root) / "config.yaml").read_text())
    config["tracking"]["project"] = "other"
    compared[1].files.write("config.yaml", yaml.safe_dump(config).encode())
    with pytest.raises(UsageError, match="several W&B projects .*other"):
        make_comparison([compared[0], Run.open(compared[1].files.root)])


def test_command_of_the_docs_finds_all_offline_data_of_a_resumed_run(tracked: Tracked):
    """`wandb sync` takes the folders; with `--dry-run` it sends nothing. What it would send is read by the tests above."""
    page = Path(__file__).parents[2] / "docs/how-to/watching.md"
    (line,) = [line for line in page.read_text().splitlines() if line.startswith("wandb sync ")]
    command = (
        line.split("    #")[0]
        .replace("runs/demo", tracked.run.files.root)
        .replace("wandb sync", "wandb sync --dry-run")
    )
    program = f"{Path(sys.executable).with_name('wandb')}"
    done = subprocess.run(
        command.replace("wandb sync", f"{program} sync", 1), shell=True, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert all(folder.name in told for folder in folders(tracked.run))


# -- what happens to W&B stays there ---------------------------------------------------------------------------------

BREAKING = """
import os, sys, time
from pathlib import Path
from openmaia.reporting.tracking import start
from tests.reporting.test_tracking import COUNTERS, results, run, settings

made = run(Path(sys.argv[1]))
with start(settings("tracking.finish_seconds=2"), made, lambda line: print("said", line)) as tracker:
    pids = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    (service,) = [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == "wandb-core"]
    print("service", service)
    os.kill(int(service), int(sys.argv[2]))
    for _ in range(20):
        for result in results(made):
            tracker.ended(result)
        tracker.sample({"backbone": COUNTERS})
    time.sleep(1)
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [9, 19], ids=["killed", "stopped"])
def test_broken_service_is_said_once_and_holds_nothing_up(tmp_path: Path, number: int):
    command = [sys.executable, "-c", BREAKING, str(tmp_path), str(number)]
    environment = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert time.monotonic() - began < 120
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("said tracking: ") == 1
    assert done.stdout.splitlines()[-1] == "done"
    assert "Traceback" not in done.stderr
    (service,) = re.findall(r"service (\d+)", done.stdout)
    state = Path(f"/proc/{service}/stat")
    assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_wrong_project_is_refused(tmp_path: Path):
    config = settings("tracking.project='../x?'")
    with pytest.raises(UsageError, match="could not be started: .*[Pp]roject"), start(config, run(tmp_path), print):
        pass


def test_tracker_without_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    config = settings("tracking.mode=online")
    with pytest.raises(UsageError, match="could not be started: .*wandb login"), start(config, run(tmp_path), print):
        pass


def test_damaged_state_is_refused(tmp_path: Path):
    made = run(tmp_path)
    made.files.write("tracking/wandb.json", b"[]")
    with pytest.raises(UsageError, match="remove it to start a new W&B run"), start(settings(), made, print):
        pass


def test_disabled_tracker_starts_nothing(tmp_path: Path):
    made = run(tmp_path)
    with start(settings("tracking.mode=disabled"), made, print) as tracker:
        assert tracker is None
    assert folders(made) == []


# -- series ----------------------------------------------------------------------------------------------------------


def test_pool_series_are_differences_of_two_points():
    series = LiveSeries()
    series.sample({"target": {**COUNTERS, "requests": 100, "batches": 10, "batched": 100}}, 0)
    assert series.values(0) == {"pools/target/queue": 3, "pools/target/replicas": 2}
    cache = {"cache_hits": 3, "cache_misses": 1}
    series.sample(
        {
            "target": {
                **COUNTERS,
                "requests": 180,
                "batches": 20,
                "batched": 180,
                "busy_seconds": 10.0,
                "batch_fill": 5.0,
                **cache,
            }
        },
        10,
    )
    found = series.values(10)
    assert found["pools/target/requests_per_second"] == 8
    assert found["pools/target/batch"] == 8
    assert found["pools/target/occupancy"] == 0.5
    assert found["pools/target/utilisation"] == 0.5
    assert found["pools/target/hit_share"] == 0.75
    assert series.values(20) == {}


def test_restarted_pool_counts_from_zero():
    series = LiveSeries()
    series.sample({"target": {"requests": 100}}, 0)
    series.values(0)
    series.sample({"target": {"requests": 20}}, 10)
    assert series.values(10)["pools/target/requests_per_second"] == 2


def test_rate_and_time_left_are_of_this_session():
    series = LiveSeries()
    series.progress("investigations", 50, 100, 0)
    series.progress("investigations", 60, 100, 60)
    found = series.values(120)
    assert found["investigations/per_minute"] == 5
    assert found["investigations/eta_minutes"] == 8
