"""The numbers of each run in a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from openmaia.analysis.agents import AgentStatistics, compute_statistics, mean_confirmation
from openmaia.analysis.costs.totals import Costs, costs
from openmaia.core.components import stored_remark
from openmaia.core.money import Bill
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.analysis.findings import Finding, findings
from openmaia.evaluation.analysis.reliability import Reliability, read_reliability
from openmaia.evaluation.analysis.selective import RiskCoverage
from openmaia.evaluation.analysis.summary import PooledScores, run_scores
from openmaia.evaluation.truth import read_truth
from openmaia.reporting.figures.charts import ScorePair, draw_risk_coverage, draw_score_pairs
from openmaia.reporting.figures.style import svg
from openmaia.reporting.image_models import image_model
from openmaia.reporting.tables import DescriptionKind, UnitRow, describe_kinds, mean_sizes
from openmaia.runs.purse import stored_spending
from openmaia.runs.run import Run
from openmaia.runs.state import STATES, counts

_MAX_PAIRS = 60
"""Largest number of units for which the chart of AUCs, with a row for each, is drawn."""


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
    spent: Bill
    """What the run has cost in all, with tests and failed calls."""
    reliability: Reliability
    coverage: Markup
    """The chart of risk-coverage curves; empty if there are none."""
    confirmed: Interval | None
    """Mean AUC of the confirmations; None without any."""
    kinds: tuple[DescriptionKind, ...]
    """Empty if nothing is evaluated."""
    sizes: Mapping[str, float]
    """See `mean_sizes`."""
    findings: tuple[Finding, ...]
    has_truth: bool
    progress: str
    """In words; empty if the run has finished."""
    evidence: Counter[str]
    """The number of investigations by `Evidence.state`."""


def summarize_run(run: Run, name: str, unit_rows: Sequence[UnitRow]) -> RunSummary:
    """Computes the numbers of a run from its rows and its evaluations."""
    config, state = run.config(), counts(run)
    done = [row for row in unit_rows if row.header]
    summaries = [row.header for row in done]
    scored = [row for row in done if row.scores]
    paired = [row for row in scored if None not in (row.scores.get("auc"), row.scores.get("auc_other"))]
    verdicts = {row.investigation: row.verdict for row in unit_rows}
    whole = run_scores(run, config["evaluate"]["bootstrap"]) if scored else None
    reliable = read_reliability(run)
    said = stored_remark(config["target"], "target")
    remark = f" ({said})" if said else ""
    return RunSummary(
        name=name,
        rows=tuple(unit_rows),
        counts={stop.value: sum(row.stop == stop for row in unit_rows) for stop in STATES},
        scores=whole,
        backbones=tuple(sorted({row.header["backbone"] for row in done})),
        targets=tuple(f"{target}{remark}" for target in sorted({row.unit.target for row in unit_rows})),
        generator=image_model(config["generator"], "generator"),
        agents=compute_statistics(summaries),
        pairs=_pairs(paired),
        costs=costs(summaries),
        spent=stored_spending(run),
        reliability=reliable,
        coverage=_coverage(reliable.selective),
        confirmed=mean_confirmation(summaries),
        kinds=describe_kinds(run, whole) if whole else (),
        sizes=mean_sizes(whole) if whole else {},
        findings=tuple(findings(run, verdicts, whole)),
        has_truth=bool(read_truth(run)),
        progress="" if state.is_finished else state.text,
        evidence=Counter(row.header["evidence"] for row in done if row.header["evidence"]),
    )


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
