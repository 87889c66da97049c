"""Builds the W&B workspace of a run: panels that plot the series of `series.py`, `rows.py` and `tracker.py`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.analysis.agents import CONDUCT, compute_statistics
from openmaia.analysis.series import TOKENS
from openmaia.config.machine import POOLS
from openmaia.core.errors import ServiceError, UsageError
from openmaia.evaluation.analysis.verdict import Verdict
from openmaia.evaluation.metric import metrics_shown
from openmaia.reporting.figures.papers import published
from openmaia.reporting.tracking.wandb_run import AGENT, INSTALL, STATE, make_plain, read_state
from openmaia.runs.files import Files
from openmaia.runs.run import Run

_FILE = "tracking/workspace.json"
_HOURS = "run/hours"
_STAGE = {"Units done": ("done", "total"), "Units per minute": ("per_minute",), "Minutes left": ("eta_minutes",)}
_FAILURES = ("ServiceError", "SandboxError", "StoreError", "other")
_POOL = {
    "Requests in the queue": "queue",
    "Batches, share of the limit": "occupancy",
    "Replicas, share of time at work": "utilisation",
    "Answered by the cache": "hit_share",
    "Requests per second": "requests_per_second",
}
_VERDICTS = [f"verdicts/{verdict.value.replace(' ', '_')}" for verdict in Verdict]
_SIZES = [f"metrics/{metric.name}" for metric in metrics_shown("means")]
_COMPARED = {
    "Verdicts": _VERDICTS,
    "Mean AUC, of tested descriptions and of all units": ("metrics/auc", "metrics/auc_all"),
    "Tested": ("verdicts/tested", "verdicts/all"),
    "Mean activation in SDs, by what the images show": _SIZES,
    "Answers sent back, per unit": ("agents/sent_back_per_unit",),
    "GPU-seconds": ("cost/gpu_seconds",),
    "Dollars": ("cost/dollars",),
}
"""Panels of numbers that each run has once."""
_SORTABLE = (
    "metrics/auc",
    "metrics/auc_all",
    "verdicts/supported",
    "verdicts/tested",
    "agents/mean_turns",
    "cost/gpu_seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWorkspace:
    """Where a W&B workspace was saved."""

    file: str
    """The full path of the JSON file."""
    url: str
    """In W&B; empty without an account."""


def write_workspace(run: Run) -> SavedWorkspace:
    """Saves the W&B workspace of a run in the run directory, and in W&B if the user has an account.

    Raises UsageError if wandb-workspaces is not installed or the run was not tracked, and ServiceError if W&B rejects
    it.
    """
    return _save(make_workspace(run), run.files, _FILE)


def write_comparison(runs: Sequence[Run], files: Files, name: str) -> SavedWorkspace:
    """Saves the W&B workspace that compares runs as a file, and in W&B if the user has an account.

    Raises UsageError and ServiceError as `make_comparison` and `write_workspace` do.
    """
    return _save(make_comparison(runs), files, name)


def _save(workspace: Any, files: Files, name: str) -> SavedWorkspace:
    files.write(name, to_json(workspace).encode())
    import wandb

    if not wandb.login(prompt=False, verify=False):
        return SavedWorkspace(file=files.path(name), url="")
    try:
        return SavedWorkspace(file=files.path(name), url=str(workspace.save().url))
    except (wandb.Error, OSError, ValueError) as error:
        raise ServiceError(
            f"the workspace could not be saved to W&B: {' '.join(str(error).split())[:500]}; {files.path(name)} has it"
        ) from error


def make_workspace(run: Run) -> Any:
    """Returns a `wandb_workspaces.workspaces.Workspace` that shows the run.

    Raises UsageError if wandb-workspaces is not installed, or the run was not tracked.
    """
    workspaces, reports = _import()
    tracked, sections = (
        _find(run),
        {
            "Scores": _scores(reports),
            "Agents": _agents(run, reports),
            "Progress": _progress(reports),
            "Pools": _pools(reports),
            "Units": [reports.WeavePanelSummaryTable(table_name="units")],
        },
    )
    workspace = _workspace(f"OpenMAIA {run.name}", tracked, sections)
    workspace.runset_settings.filters = [workspaces.Metric("ID") == tracked.id]
    return workspace


def make_comparison(runs: Sequence[Run]) -> Any:
    """Returns a `wandb_workspaces.workspaces.Workspace` that compares runs by backbone, as figure 2 of the OpenMAIA paper.

    Runs of the same backbone are averaged, each with the same weight.

    Raises UsageError if wandb-workspaces is not installed, a run was not tracked or is given twice, or the runs belong to
    several W&B projects, which no workspace can show.
    """
    workspaces, reports = _import()
    tracked = [_find(run) for run in runs]
    ids, places = [each.id for each in tracked], {(each.entity, each.project) for each in tracked}
    if len(set(ids)) < len(ids):
        raise UsageError("a run is given twice; give each run once")
    if len(places) > 1:
        names = ", ".join(sorted(f"{entity}/{project}".lstrip("/") for entity, project in places))
        raise UsageError(f"the runs belong to several W&B projects ({names}); a workspace shows runs of one")
    sections = {
        "Backbones": _backbones(runs, reports),
        "Runs": [reports.BarPlot(title=title, metrics=list(names)) for title, names in _COMPARED.items()],
    }
    workspace = _workspace("OpenMAIA backbones", tracked[0], sections)
    workspace.runset_settings.filters = [workspaces.Metric("ID").isin(ids)]
    workspace.runset_settings.pinned_columns = [
        "run:displayName",
        f"config:{AGENT}",
        *(f"summary:{name}" for name in _SORTABLE),
    ]
    workspace.settings.max_runs = max(len(ids), workspace.settings.max_runs)
    return workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrackedRun:
    id: str
    entity: str
    project: str


def _find(run: Run) -> _TrackedRun:
    state, tracking = read_state(run), run.config()["tracking"]
    if state is None:
        raise UsageError(f"{run.files.root} was not tracked: it has no {STATE}; run it with tracking.kind=wandb")
    return _TrackedRun(id=state[0], entity=tracking["entity"], project=tracking["project"])


def _import() -> tuple[Any, Any]:
    try:
        from wandb_workspaces import workspaces
        from wandb_workspaces.reports import v2 as reports
    except ImportError as error:
        raise UsageError(
            f"openmaia export dashboard needs wandb-workspaces ({error}); install it: {INSTALL}"
        ) from error
    return workspaces, reports


def _workspace(name: str, tracked: _TrackedRun, sections: Mapping[str, Sequence[Any]]) -> Any:
    workspaces, _ = _import()
    return workspaces.Workspace(
        name=re.sub(r"[^\w .()-]", " ", name, flags=re.ASCII),
        entity=tracked.entity,
        project=tracked.project,
        sections=[
            workspaces.Section(name=title, panels=list(panels), is_open=True) for title, panels in sections.items()
        ],
    )


def to_json(workspace: Any) -> str:
    """Returns a workspace in W&B's JSON format."""
    view = workspace._to_model()  # The public method needs a W&B account.
    return json.dumps(json.loads(view.model_dump_json(by_alias=True, exclude_none=True)), indent=1)


def _scores(wr: Any) -> Sequence[Any]:
    def by_unit(title: str, names: Sequence[str]) -> Any:
        return wr.LinePlot(title=title, x="score/number", y=list(names), plot_type="line")

    bars = [wr.BarPlot(title=title, metrics=list(names)) for title, names in _COMPARED.items()]
    controls = [f"score/{metric.name}" for metric in metrics_shown("summary")]
    sizes = [name.replace("metrics/", "score/") for name in _SIZES]
    return [
        *bars,
        by_unit("AUC, by unit", ["score/auc", "score/auc_worst"]),
        by_unit("Activation in SDs, by unit", sizes),
        by_unit("Metrics, by unit", controls),
    ]


def _backbones(runs: Sequence[Run], wr: Any) -> Sequence[Any]:
    headers = [header for run in runs for header in run.headers()]
    used = [f"agents/used/{make_plain(tool)}" for tool in compute_statistics(headers).usage]
    figures: dict[str, Sequence[str]] = {
        "2a: mean AUC of tested descriptions": ("metrics/auc",),
        "2a: mean activation, positive and neutral images": ("metrics/positive", "metrics/neutral"),
        "2b: share of investigations that used each tool": list(dict.fromkeys(used)),
        "2c: mean number of turns": ("agents/mean_turns",),
    }
    bars = [
        wr.BarPlot(title=title, metrics=list(names), groupby=wr.Config(AGENT), groupby_aggfunc="mean")
        for title, names in figures.items()
    ]
    rows = "\n".join(
        f"| {row['backbone']} | {row['bound']} {row['turns']} | {row['source']} |" for row in published("turns")
    )
    text = f"Published, not ours: mean number of turns\n\n| backbone | turns | source |\n|---|---|---|\n{rows}\n"
    return [*bars, wr.MarkdownPanel(markdown=text)]


def _agents(run: Run, wr: Any) -> Sequence[Any]:
    statistics = compute_statistics(run.headers())
    used = list(dict.fromkeys(f"agents/used/{make_plain(tool)}" for tool in statistics.usage))
    lengths = [f"agents/length/{length.turns:03d}_turns" for length in statistics.lengths]
    messages, turns = ["unit/messages"], ["unit/converged", "unit/turns"]
    conduct = [f"agents/{name}_per_unit" for name in CONDUCT]
    medians = ["agents/turns", "agents/messages", "agents/converged"]
    return [
        wr.BarPlot(title="Share of investigations that used each tool", metrics=used, range_x=(0, 1)),
        wr.BarPlot(title="Investigations by length of the conversation", metrics=lengths, orientation="v"),
        wr.LinePlot(title="Messages of a conversation, by unit", x="unit/number", y=messages, plot_type="line"),
        wr.LinePlot(title="Turn in which the final hypothesis appeared", x="unit/number", y=turns),
        wr.LinePlot(title="GPU-seconds of a unit", x="unit/number", y=["unit/gpu_seconds"]),
        wr.LinePlot(title="Medians so far", x=_HOURS, y=medians),
        wr.LinePlot(title="Experiments, tracebacks and refused answers per unit", x=_HOURS, y=conduct),
    ]


def _progress(wr: Any) -> Sequence[Any]:
    series = {title: [f"investigations/{key}" for key in keys] for title, keys in _STAGE.items()}
    series["Turns completed"] = ["turns/completed", "turns/of_running"]
    series["Failures by cause"] = [f"failures/{kind}" for kind in _FAILURES]
    return [wr.LinePlot(title=title, x=_HOURS, y=names) for title, names in series.items()]


def _pools(wr: Any) -> Sequence[Any]:
    series = {title: [f"pools/{role}/{key}" for role in POOLS] for title, key in _POOL.items()}
    series["Tokens per second"] = [f"pools/backbone/{name}_per_second" for name in TOKENS]
    return [wr.LinePlot(title=title, x=_HOURS, y=names) for title, names in series.items()]
