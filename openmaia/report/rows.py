"""What the index says: a row per unit, and the numbers of a run as a whole."""

import urllib.parse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from openmaia.costs.totals import Costs, costs
from openmaia.evaluate.bootstrap import Interval, mean_interval
from openmaia.evaluate.certainty import Reliability, kept
from openmaia.evaluate.run import Pooled, pooled
from openmaia.figures.agents import Agents, agents
from openmaia.figures.charts import Compared, Pairs, pairs
from openmaia.figures.coverage import Coverage, coverage
from openmaia.store.files import safe
from openmaia.store.run import Owed, Run
from openmaia.units import Unit

STOPS = ("answer", "abstain", "limit", "stopped", "failed", "running", "owed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One unit of one run. header: of its record, {} where there is none; scores: of its evaluation, likewise.
    page: where its page lies, below report/. damage: why the record cannot be shown."""

    run: str
    owed: Owed
    stop: str
    cause: str
    page: str
    header: dict[str, Any]
    scores: dict[str, Any]
    damage: str = ""

    @property
    def unit(self) -> Unit:
        return self.owed.unit

    @property
    def name(self) -> str:
        replicate = f" #{self.owed.replicate}" if self.owed.replicate else ""
        return f"{self.unit.layer}/{self.unit.index}{replicate}"

    @property
    def href(self) -> str:
        """Relative to the index. File names are percent-encoded themselves, so that they are encoded once more."""
        return urllib.parse.quote(self.page) if self.header else ""

    @property
    def outcome(self) -> str:
        """Of the evaluation, where it is not the usual one."""
        outcome = self.scores.get("outcome")
        return "" if outcome in (None, "tested", "abstained") else str(outcome)

    @property
    def difference(self) -> float | None:
        own, other = self.scores.get("auc"), self.scores.get("auc_other")
        return None if own is None or other is None else own - other


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """own, other: mean AUCs, None where nothing is evaluated. costs: of the finished investigations. confirmed: mean AUC of
    the loop's own tests, None without any. stood: how many answers stand how against their stopping rule."""

    name: str
    rows: tuple[Row, ...]
    counts: dict[str, int]
    own: float | None
    other: float | None
    evaluated: int
    difference: Interval | None
    pooled: Pooled | None
    backbones: tuple[str, ...]
    targets: tuple[str, ...]
    is_collage: bool
    generator: str
    agents: Agents
    pairs: Pairs
    costs: Costs
    reliability: Reliability
    coverage: Coverage | None
    confirmed: Interval | None
    stood: Counter[str]


def rows(run: Run, name: str, folder: str) -> tuple[Row, ...]:
    """Everything planned, in the plan's order, then records that an earlier plan asked for."""
    headers = {_owed(header): header for header in run.headers()}
    failures, running, scores = run.failures(), run.running(), run.scores()

    def row(owed: Owed) -> Row:
        header = headers.get(owed, {})
        unfinished = "failed" if owed in failures else "running" if owed in running else "owed"
        return Row(
            run=name,
            owed=owed,
            stop=str(header.get("stop", unfinished)),
            cause=str(header["cause"]) if header else failures.get(owed, ""),
            page=f"{folder}{safe(owed.unit.target)}/{safe(owed.unit.layer)}/{owed.unit.index}-{owed.replicate}.html",
            header=header,
            scores=scores.get(owed, {}),
        )

    return tuple(row(owed) for owed in dict.fromkeys([*run.plan(), *sorted(headers), *sorted(failures)]))


def summary(run: Run, name: str, found: Sequence[Row]) -> Summary:
    config = run.config()
    done = [row for row in found if row.header]
    scored = [row for row in done if row.scores]
    paired = [row for row in scored if row.difference is not None]
    whole = pooled(run, config["evaluate"]["bootstrap"]) if scored else None
    others = [row.scores["auc_other"] for row in paired]
    reliable = kept(run)
    return Summary(
        name=name,
        rows=tuple(found),
        counts={stop: sum(row.stop == stop for row in found) for stop in STOPS},
        own=whole.measures["auc"].mean if whole else None,
        other=fmean(others) if others else None,
        evaluated=len(scored),
        difference=whole.difference if whole and paired else None,
        pooled=whole,
        backbones=tuple(sorted({row.header["backbone"] for row in done})),
        targets=tuple(sorted({row.unit.target for row in found})),
        is_collage=config["generator"]["kind"] == "collage",
        generator=config["generator"]["kind"],
        agents=agents([row.header for row in done]),
        pairs=pairs([_compared(row) for row in paired]),
        costs=costs([row.header for row in done]),
        reliability=reliable,
        coverage=coverage(reliable.selective),
        confirmed=_confirmed(done),
        stood=Counter(row.header["evidence"] for row in done if row.header["evidence"]),
    )


def _confirmed(done: Sequence[Row]) -> Interval | None:
    """Mean over units of the AUC in the loop's own test."""
    values = [row.header["confirm_auc"] for row in done if row.header["confirm_auc"] is not None]
    return mean_interval(values, 2000) if values else None


def _compared(row: Row) -> Compared:
    return Compared(label=row.name, link=row.href, own=row.scores["auc"], other=row.scores["auc_other"])


def _owed(header: dict[str, Any]) -> Owed:
    unit = Unit(target=header["target"], layer=header["layer"], index=header["index"])
    return Owed(unit=unit, replicate=header["replicate"])
