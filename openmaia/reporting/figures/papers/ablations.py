"""Writes the table of a tool ablation as CSV. The column `source` tells our numbers from those of the MAIA paper."""

from collections.abc import Iterator, Sequence

from openmaia.evaluation.analysis.ablation import ToolSetResult
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.reporting.figures.papers import published
from openmaia.reporting.figures.table import DataTable, TableCell

_INTERVALS = ("positive", "neutral", "auc", "auc_all", "positive_against", "against", "against_all")


def ablation_csv(results: Sequence[ToolSetResult], network: str) -> bytes:
    """Returns a CSV table with a row for each of our sets of tools, and each row of the MAIA paper's table A5."""
    columns = ["source", "network", "tool_set", "units", "tested"]
    columns += [f"{name}{end}" for name in _INTERVALS for end in ("", "_low", "_high")]
    return DataTable(columns=tuple(columns), rows=tuple(_rows(results, network, len(columns)))).csv()


def _rows(results: Sequence[ToolSetResult], network: str, width: int) -> Iterator[tuple[TableCell, ...]]:
    for result in results:
        intervals: list[Interval | None] = [getattr(result, name) for name in _INTERVALS]
        ends = [end for interval in intervals for end in (interval.as_list() if interval else [None] * 3)]
        yield "ours", network, result.name, result.units, result.tested, *ends
    for level in published.ablations():
        row = (level.source, level.network, level.method, None, None, level.positive, None, None, level.neutral)
        yield *row, *[None] * (width - len(row))
