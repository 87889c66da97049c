"""Rows of the tables that both the terminal and the report show, and the names of runs in them."""

import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.analysis.significance import OWN, RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.statistics import wilson
from openmaia.evaluation.analysis.summary import PooledScores
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, judge, run_verdicts
from openmaia.evaluation.metric import metrics_shown
from openmaia.evaluation.truth import class_names
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.state import InvestigationState, states

_KINDS = ((OWN, "their own", "auc"), (SHUFFLED, "other units'", "auc_other"), (RANDOM, "random words", "auc_words"))
"""For each kind of descriptions its title and the name of its AUC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRow:
    """An investigation in the table of units."""

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
    class_name: str = ""
    """Of a class output; empty if unknown."""
    damage: str = ""
    """Why the record cannot be shown; empty if it can."""

    @property
    def unit(self) -> Unit:
        """The unit of the investigation."""
        return self.investigation.unit

    @property
    def name(self) -> str:
        """See `InvestigationId.name`."""
        return self.investigation.name

    @property
    def rank(self) -> tuple[float, float]:
        """The sort key in tables: that of the verdict, but a description that is not tested yet comes before what has none."""
        is_described = self.stop == "answer" and self.verdict.verdict is Verdict.NOT_TESTED
        at, low = self.verdict.rank
        return (list(Verdict).index(Verdict.ABSTAINED) - 0.5 if is_described else at), low

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

    title: str
    """What the units were given: their own descriptions, other units' or random words."""
    auc: Interval
    """Mean over the units whose own description was tested."""
    auc_all: Interval
    """Mean over all units. For those without a tested description, their own counts as chance."""
    supported: tuple[float, float, float] | None
    """The share of them that is supported, with the ends of its 95 % interval; None if unknown."""


def name_runs(runs: Sequence[Run]) -> Iterator[tuple[Run, str]]:
    """Yields each run with a unique name. The second run of a name gets the suffix " (2)", and so on."""
    taken: set[str] = set()
    for run in runs:
        name, number = run.name, 1
        while name in taken:
            number += 1
            name = f"{run.name} ({number})"
        yield run, name
        taken.add(name)


def make_rows(
    run: Run, name: str, folder: str = "units/", investigations: Sequence[InvestigationId] | None = None
) -> tuple[UnitRow, ...]:
    """Returns a row for each investigation, by default for all, in the order of `states`.

    `name` is that of the run in the report, and `folder` that of its unit pages, relative to report/.
    """
    scores, named = run.scores(investigations), class_names(run)

    def row(investigation: InvestigationId, one: InvestigationState) -> UnitRow:
        return UnitRow(
            run=name,
            investigation=investigation,
            stop=one.state.value,
            cause=one.cause,
            verdict=judge(one.state, scores.get(investigation), one.cause),
            page=f"{folder}{investigation.path}.html",
            header=one.summary,
            scores=scores.get(investigation, {}),
            class_name=named.get(investigation.unit, ""),
        )

    return tuple(row(investigation, one) for investigation, one in states(run, investigations).items())


def describe_kinds(run: Run, scores: PooledScores) -> tuple[DescriptionKind, ...]:
    """Returns the units' own descriptions, and the wrong ones that the run tested beside them."""
    shares = supported_shares(run)
    return tuple(
        DescriptionKind(
            title=title,
            auc=scores.measures[measure],
            auc_all=scores.measures[f"{measure}_all"],
            supported=shares.get(name),
        )
        for name, title, measure in _KINDS
        if scores.counts[f"{measure}_all"] or name in shares
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShares:
    """How many investigations of a run have a description that holds, for a comparison with runs of other units."""

    name: str
    investigations: int
    supported: int
    shown: int
    """Those supported that their exemplars show, too."""

    @property
    def shares(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """The shares of `supported` and `shown`, with both ends of their Wilson intervals."""
        supported, shown = (
            (count / self.investigations, *wilson(count / self.investigations, self.investigations))
            for count in (self.supported, self.shown)
        )
        return supported, shown


def run_shares(runs: Sequence[tuple[Run, str]]) -> list[RunShares]:
    """Counts the verdicts of each run that has investigations."""
    found: list[RunShares] = []
    for run, name in runs:
        verdicts = run_verdicts(run).values()
        supported = [each for each in verdicts if each.verdict is Verdict.SUPPORTED]
        shown = sum(each.shown is not None and each.shown.is_shown for each in supported)
        if verdicts:
            found.append(RunShares(name=name, investigations=len(verdicts), supported=len(supported), shown=shown))
    return found


def mean_sizes(scores: PooledScores) -> dict[str, float]:
    """Returns the mean activation in SD, by what the images show; without those that were not measured."""
    return {each.images: scores.measures[each.name].mean for each in metrics_shown("means") if scores.counts[each.name]}
