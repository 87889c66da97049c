"""Sets the descriptions of the same unit in several runs side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.reporting.browser.pages import render
from openmaia.reporting.browser.rows import RunSummary
from openmaia.reporting.tables import UnitRow
from openmaia.runs.run import InvestigationId

_SHOWN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedUnit:
    """The same investigation in several runs."""

    name: str
    rows: tuple[UnitRow | None, ...]
    """Its row in each run, or None."""

    @property
    def is_same(self) -> bool:
        """Whether all runs with the investigation have the same verdict."""
        return len({row.verdict.verdict for row in self._known}) == 1

    @property
    def difference(self) -> float | None:
        """The largest minus the smallest AUC against the worst control; None if fewer than two runs have one."""
        known = [row.verdict.worst.auc for row in self._known if row.verdict.worst]
        return max(known) - min(known) if len(known) > 1 else None

    @property
    def key(self) -> tuple[bool, float]:
        """The sort key: different verdicts first, then the largest difference."""
        return self.is_same, -(self.difference or 0.0)

    @property
    def _known(self) -> list[UnitRow]:
        return [row for row in self.rows if row is not None]


def compare_units(summaries: Sequence[RunSummary]) -> list[ComparedUnit]:
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


def render_comparison(summaries: Sequence[RunSummary], tabs: Sequence[tuple[str, str]]) -> bytes:
    """Renders the page that compares runs. `tabs` are address and title of each page in the navigation."""
    units = compare_units(summaries)
    return render(
        "compare.html.j2",
        top="",
        pages=tabs,
        summaries=summaries,
        units=units[:_SHOWN],
        count=len(units),
        same=sum(unit.is_same for unit in units),
    )
