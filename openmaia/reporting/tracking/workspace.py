"""Builds the W&B workspace of a run: panels that plot the series of `series.py`, `rows.py` and `tracker.py`."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.analysis.agents import CONDUCT, compute_statistics
from openmaia.analysis.series import TOKENS
from openmaia.config.machine import POOLS
from openmaia.core.errors import ServiceError, UsageError
from openmaia.reporting.tracking.wandb_run import INSTALL, STATE, make_plain, read_state
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWorkspace:
    """Where a W&B workspace was saved."""

    file: str
    """The full path of the JSON file in the run directory."""
    url: str
    """In W&B; empty without an account."""


def write_workspace(run: Run) -> SavedWorkspace:
    """Saves the W&B workspace of a run in the run directory, and in W&B if the user has an account.

    Raises UsageError if wandb-workspaces is not installed or the run was not tracked, and ServiceError if W&B rejects
    it.
    """
    workspace = make_workspace(run)
    run.files.write(_FILE, to_json(workspace).encode())
    import wandb

    if not wandb.login(prompt=False, verify=False):
        return SavedWorkspace(file=run.files.path(_FILE), url="")
    try:
        return SavedWorkspace(file=run.files.path(_FILE), url=str(workspace.save().url))
    except (wandb.Error, OSError, ValueError) as error:
        raise ServiceError(
            f"the workspace could not be saved to W&B: {' '.join(str(error).split())[:500]}; {_FILE} in the run has it"
        ) from error


def make_workspace(run: Run) -> Any:
    """Returns a `wandb_workspaces.workspaces.Workspace` that shows the run.

    Raises UsageError if wandb-workspaces is not installed, or the run was not tracked.
    """
    try:
        from wandb_workspaces import workspaces
        from wandb_workspaces.reports import v2 as reports
    except ImportError as error:
        raise UsageError(
            f"openmaia export dashboard needs wandb-workspaces ({error}); install it: {INSTALL}"
        ) from error
    state, tracking = read_state(run), run.config()["tracking"]
    if state is None:
        raise UsageError(f"{run.files.root} was not tracked: it has no {STATE}; run it with tracking.kind=wandb")
    sections = {
        "Agents": _agents(run, reports),
        "Progress": _progress(reports),
        "Pools": _pools(reports),
        "Units": [reports.WeavePanelSummaryTable(table_name="units")],
    }
    workspace = workspaces.Workspace(
        name=re.sub(r"[^\w .()-]", " ", f"OpenMAIA {run.name}", flags=re.ASCII),
        entity=tracking["entity"],
        project=tracking["project"],
        sections=[
            workspaces.Section(name=name, panels=list(panels), is_open=True) for name, panels in sections.items()
        ],
    )
    workspace.runset_settings.filters = [workspaces.Metric("ID") == state[0]]
    return workspace


def to_json(workspace: Any) -> str:
    """Returns a workspace in W&B's JSON format."""
    view = workspace._to_model()  # The public method needs a W&B account.
    return json.dumps(json.loads(view.model_dump_json(by_alias=True, exclude_none=True)), indent=1)


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
