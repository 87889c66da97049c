"""A finished investigation as a point of the W&B history and as a row of the W&B table of units."""

import base64
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PIL import Image

from openmaia.analysis.agents import CONDUCT, RecordSummary
from openmaia.analysis.costs.totals import costs
from openmaia.core.money import Bill
from openmaia.core.text import printable
from openmaia.evaluation.analysis.summary import mean_scores
from openmaia.evaluation.analysis.verdict import TESTED, UnitVerdict, Verdict, judge
from openmaia.evaluation.metric import columns
from openmaia.reporting.tracking.wandb_run import make_plain
from openmaia.runs.records import Record, dumps
from openmaia.runs.run import InvestigationId

_NUMBERS = (
    "turns", "messages", "converged", *CONDUCT, "prompt_tokens", "cached_tokens",
    "generated_tokens", "seconds",
)  # fmt: skip
_COST = "gpu_seconds"
_MONEY = "dollars"
_VERDICT = ("mark", "verdict", "p", "q", "worst_control", "worst_auc")
_MARKS = {
    Verdict.SUPPORTED: "🟢",
    Verdict.UNDECIDED: "🟡",
    Verdict.NOT_SUPPORTED: "🔴",
    Verdict.ABSTAINED: "⚪",
    Verdict.NOT_TESTED: "⚫",
    Verdict.FAILED: "❌",
}
"""A table of W&B cannot colour its cells."""


def table_columns() -> list[str]:
    """Returns the columns of the W&B table of units, with those of all metrics."""
    return [
        "exemplars", "unit", "target", "layer", "index", "replicate", "stop", "labels", "description", *_VERDICT, *_NUMBERS,
        _COST, _MONEY, "tool_calls", "calls_by_tool", "outcome", *columns(), "backbone",
    ]  # fmt: skip


def make_point(summary: RecordSummary, number: int) -> dict[str, Any]:
    """Returns the point by metric name. `number`, the position in the order of completion, is the x-axis."""
    values: dict[str, Any] = {field: summary[field] for field in _NUMBERS if summary.get(field) is not None}
    values |= {
        "number": number,
        _COST: costs([summary]).gpu_seconds,
        _MONEY: costs([summary]).bill.dollars,
        "name": _text(InvestigationId.of_row(summary).name),
        "target": _text(summary["target"]),
        "stop": summary["stop"],
    }
    values["labels"] = _text("; ".join(summary["labels"]))
    for tool, count in summary["tools"].items():
        key = f"tools/{make_plain(tool)}"
        values[key] = values.get(key, 0) + count
    return {f"unit/{field}": value for field, value in values.items()}


def make_cells(summary: RecordSummary, scores: Mapping[str, Any], image: Any) -> list[Any]:
    """Returns the row in the order of `table_columns`. `scores` are empty if the investigation is not evaluated."""
    tools: Mapping[str, int] = summary["tools"]
    verdict = judge(summary["stop"], scores)
    values: dict[str, Any] = {
        **summary,
        **{field: scores.get(field) for field in (*columns(), "outcome")},
        **verdict.columns,
        "mark": _MARKS[verdict.verdict],
        "exemplars": image,
        "unit": InvestigationId.of_row(summary).name,
        _COST: costs([summary]).gpu_seconds,
        _MONEY: costs([summary]).bill.dollars,
        "labels": "; ".join(summary["labels"]),
        "tool_calls": sum(tools.values()),
        "calls_by_tool": dumps(dict(tools)),
    }
    cells = [values.get(field) for field in table_columns()]
    return [_text(cell) if isinstance(cell, str) else cell for cell in cells]


def make_score_point(investigation: InvestigationId, scores: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns the columns of metrics of a unit by metric name. `number`, which counts these points, is the x-axis."""
    values = {field: scores[field] for field in columns() if scores.get(field) is not None}
    values |= {"number": number, "name": _text(investigation.name), "target": _text(investigation.unit.target)}
    return {f"score/{field}": value for field, value in values.items()}


def make_means(scores: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Returns for each column of metrics that was measured `metrics/COLUMN`, the mean, and `measured/COLUMN`, the number of
    investigations in it.
    """
    # Two plain numbers: W&B neither sorts runs by a dictionary nor draws bars of it.
    means = mean_scores(scores)
    return {f"metrics/{name}": mean for name, (mean, _) in means.items()} | {
        f"measured/{name}": count for name, (_, count) in means.items()
    }


def make_verdicts(verdicts: Iterable[UnitVerdict]) -> dict[str, int]:
    """Returns the number of investigations of the plan with each verdict, also of those with none, by metric name."""
    counts = Counter(each.verdict for each in verdicts)
    told = {f"verdicts/{verdict.value.replace(' ', '_')}": counts[verdict] for verdict in Verdict}
    return told | {"verdicts/tested": sum(counts[verdict] for verdict in TESTED), "verdicts/all": counts.total()}


def make_cost(summaries: Sequence[RecordSummary], spent: Bill) -> dict[str, float]:
    """Returns what the run has cost, by metric name. Money is left out if it was free.

    The GPU-seconds are those of finished investigations, as in `openmaia.analysis.costs.totals.costs`.
    """
    money = {"cost/dollars": spent.dollars, "cost/calls_of_unknown_cost": spent.unpriced} if spent else {}
    return {"cost/gpu_seconds": costs(summaries).gpu_seconds, **money}


def make_thumbnail(record: Record) -> Image.Image | None:
    """Returns the top exemplars side by side as one image, or None if the agent requested none."""
    # The browser loads matplotlib.
    from openmaia.reporting.browser.thumbnails import Thumbnails, make_thumbnails
    from openmaia.reporting.browser.unit.pictures import DATA_URI_PREFIX

    uris = make_thumbnails(record, Thumbnails(1_000_000))
    images = [Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(DATA_URI_PREFIX)))) for uri in uris]
    if not images:
        return None
    sheet = Image.new("RGB", (sum(image.width for image in images), max(image.height for image in images)), "white")
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width
    return sheet


def _text(value: str) -> str:
    return printable(value, keep="\n", replacement="\ufffd")
