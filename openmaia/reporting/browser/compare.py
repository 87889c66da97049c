"""The page that sets the descriptions of the same unit in several runs side by side."""

from collections.abc import Sequence

from openmaia.evaluation.analysis.comparison import compare_verdicts
from openmaia.reporting.browser.pages import render
from openmaia.reporting.browser.rows import RunSummary

_SHOWN = 500


def render_comparison(summaries: Sequence[RunSummary], tabs: Sequence[tuple[str, str]]) -> bytes:
    """Renders the page that compares runs. `tabs` are address and title of each page in the navigation."""
    rows = [{row.investigation: row for row in summary.rows} for summary in summaries]
    compared = compare_verdicts([{each: row.verdict for each, row in one.items()} for one in rows])
    return render(
        "compare.html.j2",
        top="",
        pages=tabs,
        summaries=summaries,
        units=[(each, [one.get(each.investigation) for one in rows]) for each in compared[:_SHOWN]],
        count=len(compared),
        same=sum(each.is_same for each in compared),
    )
