"""Sends a run to Weights & Biases: values of each unit, time series of stages and pools, and a table with thumbnails.

If a configured tracker cannot start, the run does not begin. Later failures of wandb never stop the run: the run only
appends to lists in memory, and a thread passes these on to wandb, which sends them from a separate process.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from PIL import Image

from openmaia.agent.loop import InvestigationResult
from openmaia.analysis.agents import RecordSummary, compute_statistics, count_turns
from openmaia.analysis.series import Counters, LiveSeries
from openmaia.config.schema import Config
from openmaia.core.errors import OpenMaiaError, StoreError, UsageError
from openmaia.core.paths import user_path
from openmaia.core.tools import BUILT_IN
from openmaia.evaluation.analysis.verdict import judge, run_verdicts
from openmaia.reporting.tracking import rows
from openmaia.reporting.tracking.wandb_run import WandbRun, end_service, make_plain
from openmaia.runs.purse import stored_spending
from openmaia.runs.run import InvestigationId, Run

_SCORED = "tracking/scored.json"
"""File with the id of the W&B run, and the paths of the investigations whose scores are points of its history."""
_TOOLS = (*BUILT_IN, "call_neuron", "display")
_INTERRUPT_SECONDS = 5.0
"""Longest wait for W&B if the run is interrupted. The process must end within 15 seconds then."""
_THUMBNAILS = 500
"""Largest number of rows in the table that have a thumbnail."""
_FIRST_TABLE = 10
"""Number of finished units at which the table is logged first. It is logged again only when the number has doubled and
at the end, because W&B stores every version."""


@contextmanager
def start(config: Config, run: Run, say: Callable[[str], None]) -> "Generator[Tracker | None]":
    """Context manager that starts the tracker of a run and closes it at the end. Yields None if none is configured.

    `say` shows the user the first problem of the tracker, or the place of its offline data.

    Raises UsageError if the tracker cannot start.
    """
    tracking = config.tracking
    if tracking.kind == "none" or tracking.mode == "disabled":
        yield None
        return
    try:
        tracker = Tracker(config, run, say)
    except Exception as error:
        raise UsageError(
            f"tracking.kind=wandb, tracking.mode={tracking.mode}: W&B could not be started: {_cause(error)}. "
            "Log in (wandb login, or WANDB_API_KEY), or give tracking.mode=offline or tracking.kind=none"
        ) from error
    seconds = _INTERRUPT_SECONDS
    try:
        yield tracker
        seconds = tracking.finish_seconds
    finally:
        tracker.close(seconds)


class Tracker:
    """Collects the events of a run in memory. A thread sends them to W&B.

    The constructor raises an exception if W&B cannot be started. Later problems are shown to the user but raise none.
    Of the methods, only `close` waits for W&B.
    """

    def __init__(self, config: Config, run: Run, say: Callable[[str], None]):
        self._run, self._say, self._every = run, say, config.tracking.every
        self._lock, self._over, self._has_failed = threading.Lock(), threading.Event(), False
        self._series = LiveSeries()
        self._folder = run.files.local or _folder_apart(config, run)
        self._is_kept_apart = run.files.local is None and config.tracking.mode == "offline"
        self._wandb = WandbRun(config, run, self._folder)
        told, new = (run.headers(), []) if self._wandb.is_resumed else ([], run.headers())
        self._new: list[RecordSummary] = list(new)
        self._summaries: dict[InvestigationId, RecordSummary] = {InvestigationId.of_row(one): one for one in told}
        self._thumbnails: dict[InvestigationId, Image.Image | None] = {}
        self._next_table = _FIRST_TABLE
        self._thread = threading.Thread(target=self._follow, name="tracking", daemon=True)
        self._thread.start()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Sets the progress of a stage, such as "investigations"."""
        with self._lock:
            self._series.progress(make_plain(stage), done, total, time.time())

    def ended(self, result: InvestigationResult) -> None:
        """Adds the result of an investigation that ended."""
        with self._lock:
            if result.summary is None:
                self._series.failed(result.cause)
            else:
                self._new.append(result.summary)

    def sample(self, counters: Counters) -> None:
        """Sets the current statistics of the pools."""
        with self._lock:
            self._series.sample(counters, time.time())

    def close(self, seconds: float) -> None:
        """Sends the remaining data and finishes the W&B run. Gives up after the given number of seconds."""
        self._over.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._report(f"W&B did not take everything within {seconds:g} s; `wandb sync` sends {self._folder}/wandb")
            end_service()
        elif self._is_kept_apart:
            self._say(
                f"W&B's offline data of this run are on this machine: `wandb sync {self._folder}/wandb/offline-run-*`"
            )

    def _follow(self) -> None:
        while not self._over.wait(self._every):
            self._try(self._tell)
        self._try(self._tell)
        self._try(self._tell_scores)
        if not self._try(self._wandb.finish):
            end_service()

    def _try(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except Exception as error:  # wandb raises many types
            self._report(_cause(error))
            return False
        return True

    def _report(self, problem: str) -> None:
        if not self._has_failed:  # Later problems usually have the same cause.
            self._has_failed = True
            self._say(f"tracking: {problem}; the run goes on, and its directory has everything")

    def _tell(self) -> None:
        now = time.time()
        with self._lock:
            new, self._new = self._new, []
            values = self._series.values(now)
        for summary in new:
            if (investigation := InvestigationId.of_row(summary)) not in self._summaries:
                self._summaries[investigation] = summary
                self._wandb.log(rows.make_point(summary, len(self._summaries)))
        hours = (now - self._wandb.began) / 3600
        self._wandb.log({"run/hours": hours, **values, **self._agents(), **self._turns()})
        if len(self._summaries) >= self._next_table and not self._over.is_set():
            self._next_table = 2 * len(self._summaries)
            self._tell_table({})

    def _tell_scores(self) -> None:
        if self._summaries:
            scores = self._run.scores()
            self._tell_table(scores)
            summaries = list(self._summaries.values())
            values = rows.make_means(scores.values()) | rows.make_verdicts(run_verdicts(self._run).values())
            values |= rows.make_cost(summaries, stored_spending(self._run))
            self._wandb.log(values)
            self._wandb.summarize(values)
            self._tell_points(scores)

    def _tell_points(self, scores: Mapping[InvestigationId, Mapping[str, Any]]) -> None:
        """Logs the scores of each unit that has none in the W&B run yet, whose history cannot be changed."""
        stored: Any = self._run.files.read_json(_SCORED, "remove it")
        known = cast(dict[str, Any], stored) if isinstance(stored, dict) else {}
        told: list[str] = list(known["paths"]) if known.get("id") == self._wandb.id else []
        before = set(told)
        for investigation, values in scores.items():
            if investigation.path not in before:
                told.append(investigation.path)
                self._wandb.log(rows.make_score_point(investigation, values, len(told)))
        self._run.files.write(_SCORED, json.dumps({"id": self._wandb.id, "paths": told}).encode())

    def _tell_table(self, scores: Mapping[InvestigationId, Mapping[str, Any]]) -> None:
        found = {each: (summary, scores.get(each, {})) for each, summary in self._summaries.items()}
        ranked = sorted(found, key=lambda each: judge(found[each][0]["stop"], found[each][1]).rank)
        cells = [rows.make_cells(*found[each], self._thumbnail(each)) for each in ranked]
        self._wandb.log_table(rows.table_columns(), cells)

    def _thumbnail(self, investigation: InvestigationId) -> Image.Image | None:
        if investigation not in self._thumbnails and len(self._thumbnails) < _THUMBNAILS:
            self._thumbnails[investigation] = None
            with suppress(StoreError, OSError):  # the record is damaged or was removed
                self._thumbnails[investigation] = rows.make_thumbnail(self._run.record(investigation))
        return self._thumbnails.get(investigation)

    def _turns(self) -> dict[str, float]:
        """Returns the numbers of completed turns; empty if the journals cannot be read."""
        try:
            begun = self._run.turns_begun()
        except (StoreError, OSError):
            return {}
        return {f"turns/{key}": float(value) for key, value in count_turns(self._summaries, begun).items()}

    def _agents(self) -> dict[str, float]:
        statistics = compute_statistics(list(self._summaries.values()))
        # Without the zeros, an average over runs would leave out those whose agents never used a tool.
        values: dict[str, float | None] = {f"used/{tool}": 0.0 for tool in _TOOLS if statistics.investigations}
        values |= {f"used/{make_plain(tool)}": share.mean for tool, share in statistics.usage.items()}
        values |= {f"length/{length.turns:03d}_turns": length.investigations for length in statistics.lengths}
        values |= {f"{name}_per_unit": mean for name, mean in statistics.conduct.items()}
        values |= {"turns": statistics.turns, "messages": statistics.messages, "converged": statistics.convergence}
        values["mean_turns"] = statistics.mean_turns
        return {f"agents/{key}": value for key, value in values.items() if value is not None}


def _folder_apart(config: Config, run: Run) -> Path:
    # Runs in other buckets may have the same name.
    digest = hashlib.sha256(config.paths.runs.encode()).hexdigest()[:8]
    return user_path(config.paths.cache) / "tracking" / f"{run.name}-{digest}"


def _cause(error: Exception) -> str:
    cause = error.message if isinstance(error, OpenMaiaError) else f"{type(error).__name__}: {error}"
    return " ".join(cause.split())
