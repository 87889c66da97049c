"""Scores an agent on units of which it is known what they respond to: how often it is right, and what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.analysis.costs.totals import costs
from openmaia.evaluation.analysis.bootstrap import Interval, mean_interval, share_interval
from openmaia.evaluation.analysis.significance import SHUFFLED, supported_shares
from openmaia.evaluation.analysis.verdict import TESTED, Verdict, run_verdicts
from openmaia.evaluation.truth import read_truth, truth_scores
from openmaia.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkMeasure:
    """A column of the table of agents."""

    name: str
    title: str
    hint: str
    form: str = ".0%"
    """Format of each number."""


TABLE_MEASURES = (
    BenchmarkMeasure(
        name="exact", title="exact", hint="every slot of the truth has a label, and no label is left over"
    ),
    BenchmarkMeasure(name="precision", title="precision", hint="labels that hit a slot, over units with labels"),
    BenchmarkMeasure(name="recall", title="recall", hint="slots that a label hits; 0 for an abstention"),
    BenchmarkMeasure(
        name="supported",
        title="supported",
        hint="descriptions that the test supports, of all units: one that could not be tested counts as one that it does not support",
    ),
    BenchmarkMeasure(name="wrong", title="supported, not exact", hint="the same, of descriptions that are not exact"),
    BenchmarkMeasure(
        name="false_alarms",
        title="false alarms",
        hint="units for which the test supports a description of another unit",
    ),
    BenchmarkMeasure(name="images", title="images", hint="that the agent drew and edited, per unit", form=",.0f"),
    BenchmarkMeasure(name="tokens", title="tokens", hint="that it read and wrote, per unit", form=",.0f"),
    BenchmarkMeasure(name="gpu_seconds", title="GPU-seconds", hint="of its services, per unit", form=",.3g"),
    BenchmarkMeasure(name="dollars", title="US dollars", hint="that its services cost, per unit", form=",.3g"),
)
"""Shares are of units, with Wilson's intervals; precision, recall and costs are means over units, with bootstrap intervals."""


def score_agent(run: Run, resamples: int) -> Mapping[str, Interval | None]:
    """Returns a value for each of TABLE_MEASURES; None if it is not defined, or not known, such as the price of a call.

    The run must be complete. Labels and truth are compared by words. Exemplars, the bank and the test are no costs of the
    agent. Without any test, it is not known what it supports.
    """
    matches = read_truth(run)
    matches = [each for each in matches if each.by == matches[0].by]
    scores = next(iter(truth_scores(matches, resamples)), None)
    exact = {each.unit for each in matches if each.exact}
    verdicts = {each.unit: verdict.verdict for each, verdict in run_verdicts(run).items()}
    is_tested = any(verdict in TESTED for verdict in verdicts.values()) or Verdict.NOT_TESTED not in verdicts.values()
    supported = {unit: verdict is Verdict.SUPPORTED for unit, verdict in verdicts.items() if is_tested}
    alarms = supported_shares(run).get(SHUFFLED)
    return {
        "exact": scores and scores.exact,
        "precision": scores and scores.precision,
        "recall": scores and scores.recall,
        "supported": _share([*supported.values()]),
        "wrong": _share([is_so and unit not in exact for unit, is_so in supported.items()]),
        "false_alarms": Interval(mean=alarms[0], low=alarms[1], high=alarms[2]) if alarms else None,
        **_costs(run.headers(), resamples),
    }  # fmt: skip


def _share(hits: Sequence[bool]) -> Interval | None:
    return share_interval(sum(hits) / len(hits), len(hits)) if hits else None


def _costs(headers: Sequence[Mapping[str, Any]], resamples: int) -> dict[str, Interval | None]:
    spent = [costs([each]) for each in headers]
    drawing = [[each.services[name] for name in ("generator", "editor") if name in each.services] for each in spent]
    columns = {
        "images": [sum(service.requests for service in each) for each in drawing],
        "tokens": [each.prompt_tokens + each.generated_tokens for each in spent],
        "gpu_seconds": [each.gpu_seconds for each in spent],
        "dollars": [each.bill.dollars for each in spent],
    }
    if any(each.bill.unpriced for each in spent):
        columns["dollars"] = []
    return {
        name: mean_interval([float(each) for each in values], resamples) if values else None
        for name, values in columns.items()
    }
