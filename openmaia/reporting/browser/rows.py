"""The content of a report's first page: a row for each investigation, and the numbers of each run."""

import urllib.parse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import Interval, mean_interval
from openmaia.evaluation.analysis.findings import findings
from openmaia.evaluation.analysis.reliability import Reliability, read_reliability
from openmaia.evaluation.analysis.selective import RiskCoverage
from openmaia.evaluation.analysis.significance import OWN, RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.summary import PooledScores, run_scores
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, judge
from openmaia.evaluation.truth import read_truth
from openmaia.reporting.figures.agents import AgentStatistics, compute_statistics
from openmaia.reporting.figures.charts import ScorePair, draw_risk_coverage, draw_score_pairs
from openmaia.reporting.figures.style import svg
from openmaia.reporting.image_models import image_model
from openmaia.reporting.totals import Costs, costs
from openmaia.runs.files import safe
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.state import STATES, InvestigationState, counts, states

_MAX_PAIRS = 60
"""Largest number of units for which the chart of AUCs, with a row for each, is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRow:
    """An investigation in the table on the first page."""

    run: str
    """The name of the run in the report."""
    investigation: InvestigationId
    stop: str
    """One of `openmaia.runs.state.STATES`."""
    cause: str
    """See `InvestigationState.cause`."""
    page: str
    """The path of its page, relative to report/."""
    header: dict[str, Any]
    """The summary of its record; empty without a readable one."""
    scores: dict[str, Any]
    """Empty if it is not evaluated."""
    verdict: UnitVerdict
    damage: str = ""
    """Why the record cannot be shown; empty if it can."""

    @property
    def unit(self) -> Unit:
        """The unit of the investigation."""
        return self.investigation.unit

    @property
    def name(self) -> str:
        """Layer and index, and the number of the replicate unless it is 0."""
        replicate = f" #{self.investigation.replicate}" if self.investigation.replicate else ""
        return f"{self.unit.layer}/{self.unit.index}{replicate}"

    @property
    def stem(self) -> str:
        """The percent-encoded address of its page without `.html`, relative to the index."""
        return urllib.parse.quote(self.page.removesuffix(".html"))

    @property
    def href(self) -> str:
        """The percent-encoded address of its page, relative to the index; empty without a record."""
        return urllib.parse.quote(self.page) if self.header else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionKind:
    """Descriptions of one kind that were tested for the units of a run."""

    name: str
    """OWN, SHUFFLED or RANDOM."""
    auc: Interval
    """Mean over the units whose own description was tested."""
    auc_all: Interval
    """Mean over all units. For those without a tested description, OWN counts as chance."""
    supported: tuple[float, float, float] | None
    """The share of them that is supported, with the ends of its 95 % interval; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a report shows about one run. Numbers that cannot be computed are None."""

    name: str
    rows: tuple[UnitRow, ...]
    counts: dict[str, int]
    """By state."""
    scores: PooledScores | None
    """None if nothing is evaluated."""
    backbones: tuple[str, ...]
    targets: tuple[str, ...]
    generator: str
    agents: AgentStatistics
    pairs: Markup
    """The chart of own and other AUCs; empty if no unit has both, or more than _MAX_PAIRS do."""
    costs: Costs
    reliability: Reliability
    coverage: Markup
    """The chart of risk-coverage curves; empty if there are none."""
    confirmed: Interval | None
    """Mean AUC of the confirmations; None without any."""
    controls: tuple[DescriptionKind, ...]
    verdicts: Counter[Verdict]
    findings: tuple[str, ...]
    """See `openmaia.evaluation.analysis.findings`."""
    has_truth: bool
    progress: str
    """In words; empty if the run has finished."""
    evidence: Counter[str]
    """The number of investigations by `Evidence.state`."""


def make_rows(run: Run, name: str, folder: str) -> tuple[UnitRow, ...]:
    """Returns a row for each investigation, in the order of `states`.

    `name` is that of the run in the report, and `folder` that of its unit pages, relative to report/.
    """
    scores = run.scores()

    def row(investigation: InvestigationId, one: InvestigationState) -> UnitRow:
        return UnitRow(
            run=name,
            investigation=investigation,
            stop=one.state.value,
            cause=one.cause,
            verdict=judge(one.state, scores.get(investigation), one.cause),
            page=f"{folder}{safe(investigation.unit.target)}/{safe(investigation.unit.layer)}/{investigation.unit.index}-{investigation.replicate}.html",
            header=one.summary,
            scores=scores.get(investigation, {}),
        )

    return tuple(row(investigation, one) for investigation, one in states(run).items())


def summarize_run(run: Run, name: str, unit_rows: Sequence[UnitRow]) -> RunSummary:
    """Computes the numbers of a run from its rows and its evaluations."""
    config, state = run.config(), counts(run)
    done = [row for row in unit_rows if row.header]
    scored = [row for row in done if row.scores]
    paired = [row for row in scored if None not in (row.scores.get("auc"), row.scores.get("auc_other"))]
    verdicts = {row.investigation: row.verdict for row in unit_rows}
    whole = run_scores(run, config["evaluate"]["bootstrap"]) if scored else None
    reliable = read_reliability(run)
    return RunSummary(
        name=name,
        rows=tuple(unit_rows),
        counts={stop.value: sum(row.stop == stop for row in unit_rows) for stop in STATES},
        scores=whole,
        backbones=tuple(sorted({row.header["backbone"] for row in done})),
        targets=tuple(sorted({row.unit.target for row in unit_rows})),
        generator=image_model(config["generator"], "generator"),
        agents=compute_statistics([row.header for row in done]),
        pairs=_pairs(paired),
        costs=costs([row.header for row in done]),
        reliability=reliable,
        coverage=_coverage(reliable.selective),
        confirmed=_confirmed(done),
        controls=_controls(run, whole),
        verdicts=Counter(each.verdict for each in verdicts.values()),
        findings=tuple(each[0].upper() + each[1:] for each in findings(run, verdicts, whole)),
        has_truth=bool(read_truth(run)),
        progress="" if state.is_finished else state.text,
        evidence=Counter(row.header["evidence"] for row in done if row.header["evidence"]),
    )


def _controls(run: Run, whole: PooledScores | None) -> tuple[DescriptionKind, ...]:
    shares = supported_shares(run)
    if whole is None:
        return ()
    return tuple(
        DescriptionKind(
            name=name,
            auc=whole.measures[measure],
            auc_all=whole.measures[f"{measure}_all"],
            supported=shares.get(name),
        )
        for name, measure in ((OWN, "auc"), (SHUFFLED, "auc_other"), (RANDOM, "auc_words"))
        if whole.counts[f"{measure}_all"] or name in shares
    )


def _confirmed(done: Sequence[UnitRow]) -> Interval | None:
    values = [row.header["confirm_auc"] for row in done if row.header["confirm_auc"] is not None]
    return mean_interval(values, 2000) if values else None


def _pairs(paired: Sequence[UnitRow]) -> Markup:
    if not 0 < len(paired) <= _MAX_PAIRS:
        return Markup()
    pairs = [
        ScorePair(label=row.name, link=row.href, own=row.scores["auc"], other=row.scores["auc_other"]) for row in paired
    ]
    titles = {pair.link: f"{pair.label}: own {pair.own:.2f}, another unit's {pair.other:.2f}" for pair in pairs}
    return svg(draw_score_pairs(pairs), "AUC on own images and on another unit's images, a row for each unit", titles)


def _coverage(curves: Sequence[RiskCoverage]) -> Markup:
    return svg(draw_risk_coverage(curves), "Risk over coverage") if curves else Markup()
