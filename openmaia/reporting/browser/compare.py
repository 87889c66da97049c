"""Sets the descriptions of the same unit in several runs side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.reporting.browser.pages import render
from openmaia.reporting.browser.rows import RunSummary, UnitRow
from openmaia.runs.run import InvestigationId

SHOWN = 500
"""Maximum number of units on the page that compares runs. Those whose runs differ most come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedUnit:
    """The same investigation in several runs, that is, the same unit and number of the replicate.

    Replicates are repeated investigations of a unit.
    """

    name: str
    rows: tuple[UnitRow | None, ...]
    """Its row in each run, in the order of the runs; None for a run that does not contain the investigation."""

    @property
    def is_same(self) -> bool:
        """Whether the verdict is the same in all runs that contain the investigation."""
        return len({row.verdict.verdict for row in self._known}) == 1

    @property
    def difference(self) -> float | None:
        """The largest minus the smallest AUC of this investigation in the compared runs.

        It is None if fewer than two runs have an AUC. The AUC of a run compares images of its description with control
        images. There are several groups of control images. The AUC of the worst group is used: the one whose interval
        begins lowest (see `openmaia.evaluation.analysis.verdict.UnitVerdict.worst`).
        """
        known = [row.verdict.worst.auc for row in self._known if row.verdict.worst]
        return max(known) - min(known) if len(known) > 1 else None

    @property
    def key(self) -> tuple[bool, float]:
        """The sort key: different verdicts first, then the largest difference of the AUC."""
        return self.is_same, -(self.difference or 0.0)

    @property
    def _known(self) -> list[UnitRow]:
        return [row for row in self.rows if row is not None]


def compared_units(summaries: Sequence[RunSummary]) -> list[ComparedUnit]:
    """Returns the investigations that at least two runs contain, in the order of `ComparedUnit.key`."""
    found: dict[InvestigationId, list[UnitRow | None]] = {}
    for number, summary in enumerate(summaries):
        for row in summary.rows:
            found.setdefault(row.investigation, [None] * len(summaries))[number] = row
    shared = {each: rows for each, rows in found.items() if sum(row is not None for row in rows) > 1}
    units = [
        ComparedUnit(name=next(row.name for row in rows if row is not None), rows=tuple(rows))
        for _, rows in sorted(shared.items())
    ]
    return sorted(units, key=lambda unit: unit.key)


def compare_page(summaries: Sequence[RunSummary], tabs: Sequence[tuple[str, str]]) -> bytes:
    """Renders the page that compares runs.

    Args:
        summaries: The numbers and rows of each run.
        tabs: Address and title of each page of the report to which this page links.
    """
    units = compared_units(summaries)
    return render(
        "compare.html.j2",
        top="",
        pages=tabs,
        summaries=summaries,
        units=units[:SHOWN],
        count=len(units),
        same=sum(unit.is_same for unit in units),
    )
