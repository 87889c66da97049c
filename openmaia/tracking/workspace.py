"""The W&B workspace of a run as code: which panels there are, over the names that series.py, rows.py and follow.py tell."""

import json
import netrc
import os
import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmaia.errors import ServiceError, UsageError
from openmaia.figures.agents import agents
from openmaia.schema import POOLS
from openmaia.store.run import Run
from openmaia.tracking.ledger import NAME, Ledger
from openmaia.tracking.series import plain
from openmaia.tracking.wandb_run import INSTALL

FILE = "tracking/workspace.json"
HOST = "https://api.wandb.ai"
HOURS = "run/hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """file: of the workspace. url: where it was saved, "" where there is no account to save it in."""

    file: str
    url: str


def write(run: Run) -> Written:
    """Into the run directory, and into W&B where an account is there. Raises UsageError without wandb-workspaces or for a
    run that was not tracked, ServiceError where W&B refuses it."""
    workspace = make(run)
    run.files.write(FILE, specification(workspace).encode())
    return Written(file=run.files.path(FILE), url=_saved(workspace) if has_account() else "")


def make(run: Run) -> Any:
    """A wandb_workspaces Workspace that shows this run."""
    try:
        from wandb_workspaces import workspaces as ws
        from wandb_workspaces.reports import v2 as wr
    except ImportError as error:
        raise UsageError(f"openmaia dashboard needs wandb-workspaces ({error}); install it: {INSTALL}") from error
    if not run.files.exists(NAME):
        raise UsageError(f"{run.files.root} was not tracked: it has no {NAME}; run it with tracking.kind=wandb")
    tracking, ledger = run.config()["tracking"], Ledger.open(run.files, run.name)
    made = ws.Workspace(
        name=re.sub(r"[^\w .()-]", " ", f"OpenMAIA {run.name}", flags=re.ASCII),
        entity=tracking["entity"],
        project=tracking["project"],
        sections=[
            ws.Section(name=name, panels=list(panels), is_open=True)
            for name, panels in (
                ("Agents", _agents(run, wr)),
                ("Progress", _progress(wr)),
                ("Pools", _pools(wr)),
                ("Units", _units(wr)),
            )
        ],
    )
    made.runset_settings.filters = [ws.Metric("ID") == ledger.id]
    return made


def specification(workspace: Any) -> str:
    """The view as W&B stores it."""
    view = workspace._to_model()  # the only way that the library has without an account
    return json.dumps(json.loads(view.model_dump_json(by_alias=True, exclude_none=True)), indent=1)


def has_account() -> bool:
    """Whether wandb would find a key: in the environment, or in the netrc file for W&B's host."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urllib.parse.urlsplit(os.environ.get("WANDB_BASE_URL", HOST)).hostname or ""
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _saved(workspace: Any) -> str:
    import wandb

    try:
        return str(workspace.save().url)
    except (wandb.Error, OSError, ValueError) as error:
        raise ServiceError(
            f"the workspace could not be saved to W&B: {' '.join(str(error).split())[:500]}; {FILE} in the run has it"
        ) from error


def _agents(run: Run, wr: Any) -> Sequence[Any]:
    """The two charts of the paper's figure, and convergence."""
    found = agents(run.headers())
    used = list(dict.fromkeys(f"agents/used/{plain(tool)}" for tool in found.usage))
    lengths = [f"agents/length/{length.turns:03d}_turns" for length in found.lengths]
    return [
        wr.BarPlot(title="Share of investigations that used each tool", metrics=used, range_x=(0, 1)),
        wr.BarPlot(title="Investigations by length of the conversation", metrics=lengths, orientation="v"),
        wr.LinePlot(
            title="Messages of a conversation, by unit", x="unit/number", y=["unit/messages"], plot_type="line"
        ),
        wr.LinePlot(
            title="Turn in which the final hypothesis appeared", x="unit/number", y=["unit/converged", "unit/turns"]
        ),
        wr.LinePlot(title="Medians so far", x=HOURS, y=["agents/turns", "agents/messages", "agents/converged"]),
    ]


def _progress(wr: Any) -> Sequence[Any]:
    stage = "investigations"
    return [
        wr.LinePlot(title="Units done", x=HOURS, y=[f"{stage}/done", f"{stage}/total"]),
        wr.LinePlot(title="Units per minute", x=HOURS, y=[f"{stage}/per_minute"]),
        wr.LinePlot(title="Minutes left", x=HOURS, y=[f"{stage}/eta_minutes"]),
        wr.LinePlot(
            title="Failures by cause",
            x=HOURS,
            y=[f"failures/{kind}" for kind in ("ServiceError", "SandboxError", "StoreError", "other")],
        ),
    ]


def _pools(wr: Any) -> Sequence[Any]:
    shown = {
        "queue": "Requests in line",
        "occupancy": "Batches, share of the limit",
        "utilisation": "Replicas, share of time at work",
        "hit_share": "Answered by the cache",
        "requests_per_second": "Requests per second",
    }
    panels = [wr.LinePlot(title=t, x=HOURS, y=[f"pools/{role}/{key}" for role in POOLS]) for key, t in shown.items()]
    tokens = [f"pools/backbone/{kind}_tokens_per_second" for kind in ("prompt", "cached", "generated")]
    return [*panels, wr.LinePlot(title="Tokens per second", x=HOURS, y=tokens)]


def _units(wr: Any) -> Sequence[Any]:
    return [
        wr.WeavePanelSummaryTable(table_name="units"),
        wr.LinePlot(title="AUC, own and another unit's images", x="score/number", y=["score/auc", "score/auc_other"]),
    ]
