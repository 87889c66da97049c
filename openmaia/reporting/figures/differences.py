"""The table of the paired differences between runs, or between the methods whose descriptions were tested."""

from collections.abc import Sequence

from openmaia.evaluation.analysis.comparison import RunComparison, compared_measures
from openmaia.evaluation.analysis.sanity import warning
from openmaia.reporting.figures.table import DataTable

_COLUMNS = ("one", "other", "measure", "units", "mean_one", "mean_other", "difference", "low", "high", "p", "adjusted")


def difference_table(comparisons: Sequence[RunComparison]) -> DataTable:
    """Returns a table with a row for each pair of runs that can be compared and each measure."""
    titles = compared_measures()
    rows = tuple(
        (
            pair.one, pair.other, titles[each.measure], each.units, each.one.mean, each.other.mean,
            each.difference.mean, each.difference.low, each.difference.high, each.p, each.adjusted,
        )
        for pair in comparisons
        for each in pair.differences
    )  # fmt: skip
    compared = {each.measure for pair in comparisons for each in pair.differences}
    notes = (
        "Means over the units that both have, and differences paired by unit, with 95 % bootstrap intervals over prompts and "
        "units; p: Wilcoxon's signed-rank test over units, adjusted for the false discovery rate over all rows.",
        *(
            f"By our sanity tests, {titles[name]}: {warning(name)}."
            for name in titles
            if name in compared and warning(name)
        ),
    )
    return DataTable(caption="Paired differences between methods", columns=_COLUMNS, rows=rows, notes=notes)
