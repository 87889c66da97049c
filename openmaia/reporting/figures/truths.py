"""Tables that compare labels with what units are known to respond to (`openmaia.evaluation.truth`)."""

from collections.abc import Sequence

from openmaia.evaluation.truth import read_truth, truth_scores
from openmaia.reporting.figures.table import DataTable
from openmaia.runs.run import Run

_SCORES = ("exact", "precision", "recall")


def truth_tables(runs: Sequence[tuple[Run, str]]) -> dict[str, DataTable]:
    """Returns the tables `truth`, with a row for each run and method of comparison, and `truth-units`, with one for
    each investigation and method. Empty if no run has a stored comparison."""
    matches = {name: read_truth(run) for run, name in runs}
    if not any(matches.values()):
        return {}
    means = tuple(
        (
            name,
            each.by,
            each.units,
            *(value for score in _SCORES for value in getattr(each, score).as_list()),
            each.unknown,
        )
        for name, several in matches.items()
        for each in truth_scores(several)
    )
    units = tuple(
        (
            name, each.by, each.unit.layer, each.unit.index, each.replicate, "; ".join(each.labels), "; ".join(each.truth),
            int(each.exact), each.precision, each.recall,
        )
        for name, several in matches.items()
        for each in several
    )  # fmt: skip
    intervals = (f"{score}{end}" for score in _SCORES for end in ("", "_low", "_high"))
    notes = (
        "exact: every alternative that excites the unit has a label, and no label is left over; 95 % intervals, Wilson for "
        "exact, bootstrap over units for precision and recall; unknown: comparisons without an answer, which count as misses.",
    )
    title = "Labels against what the units are known to respond to"
    return {
        "truth": DataTable(
            caption=title, columns=("run", "by", "units", *intervals, "unknown"), rows=means, notes=notes
        ),
        "truth-units": DataTable(
            caption=f"{title}, by unit",
            columns=("run", "by", "layer", "unit", "replicate", "labels", "truth", *_SCORES),
            rows=units,
            notes=notes,
        ),
    }
