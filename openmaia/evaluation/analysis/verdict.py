"""Derives one verdict per investigation from its stored scores. No other module derives verdicts.

The rule:
    not tested: no control is measured.
    not supported: the interval of an AUC lies at or below 0.5 as a whole, or the positive images excite the unit less
    than photographs do, on average.
    undecided: otherwise, if an interval crosses 0.5, or q is above 0.05 or not computed yet.
    supported: every other description. So every interval lies above 0.5, and q is at most 0.05.

p is the p-value of `openmaia.evaluation.analysis.permutation`, and q is p adjusted over the tested descriptions of the
run (Benjamini and Hochberg). A control counts as not measured if it has fewer than _MIN_PROMPTS prompts, or if the
positive images do: so few prompts prove nothing even with an AUC of 1, whose bootstrap interval is a single point. The
worst control is the one whose interval begins lowest, and not the one with the lowest AUC, because a control with few
images may have a higher AUC that is less certain.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import numpy as np
import pyarrow as pa

from openmaia.evaluation.analysis.statistics import CHANCE
from openmaia.evaluation.metric import Control, all_metrics, columns
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.snapshot import Snapshot
from openmaia.runs.state import states

LEVEL = 0.05
"""The largest q of a supported description."""

_MIN_PROMPTS = 4
"""Prompts (or photographs) on each side of a measured control. With 4, the probability that all positive values exceed
all control values by chance is 1 in 70; with 3 it is above 2.5 %."""


def all_controls() -> dict[str, Control]:
    """Returns what the positive images are compared with, by the name of the metric."""
    return {name: metric.control for name, metric in all_metrics().items() if metric.control is not None}


class Verdict(StrEnum):
    """In the order of tables: the best one first."""

    SUPPORTED = "supported"
    UNDECIDED = "undecided"
    """More images, more wrong descriptions to compare with, or the rest of the run may still decide it."""
    NOT_SUPPORTED = "not supported"
    ABSTAINED = "abstained"
    NOT_TESTED = "not tested"
    """Pending, running, not evaluated yet, or impossible to test."""
    FAILED = "failed"


TESTED = (Verdict.SUPPORTED, Verdict.UNDECIDED, Verdict.NOT_SUPPORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlScore:
    """The comparison of the positive images with one control."""

    key: str
    """A key of `all_controls`."""
    auc: float
    low: float
    """Of the interval, which allows for all looks (`openmaia.evaluation.analysis.sequential`)."""
    high: float
    positive: int
    """Number of images."""
    control: int
    """Number of images."""
    mean: float
    """Of the standardised activations on the control images."""

    @property
    def name(self) -> str:
        """For display."""
        return all_controls()[self.key].name

    @property
    def short(self) -> str:
        """For display in a narrow table."""
        return all_controls()[self.key].short

    @property
    def text(self) -> str:
        """The comparison in words, with the numbers of positive and of control images."""
        return (
            f"{self.name}: AUC {self.auc:.2f} (interval {self.low:.2f} to {self.high:.2f}, {self.positive} and {self.control} "
            f"images)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemplarCount:
    """How many of the unit's top exemplars show a label, and how many random photographs. It decides no verdict."""

    exemplars: tuple[int, int]
    """Those that show a label, and those of which it is known, which are more than none."""
    photographs: tuple[int, int]
    """The same of photographs; known may be 0."""

    @property
    def base(self) -> float | None:
        """The share of photographs; None if it is not known."""
        shown, known = self.photographs
        return shown / known if known else None

    @property
    def text(self) -> str:
        """The counts for a table, such as "8 of 10; base 0.06"."""
        counted = "{} of {}".format(*self.exemplars)
        return counted if self.base is None else f"{counted}; base {self.base:.2f}"

    @property
    def is_shown(self) -> bool:
        """Whether at least half of the exemplars show a label, and more than photographs do (Fisher's exact test, one-sided,
        at LEVEL), if these are known.
        """
        from scipy import stats  # which takes a second, and most commands show no such count

        (shown, known), (other, all_others) = self.exemplars, self.photographs
        if shown * 2 < known or not all_others:
            return shown * 2 >= known
        table = np.array([[shown, known - shown], [other, all_others - other]])
        return float(stats.fisher_exact(table, alternative="greater").pvalue) <= LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVerdict:
    """The verdict on the description of an investigation, with the evidence for it."""

    verdict: Verdict
    reason: str
    """One sentence."""
    why: str = ""
    """What decided beside the AUC and its interval, in a few characters for a narrow table, such as "p 0.134"."""
    controls: tuple[ControlScore, ...] = ()
    """Those that were measured, in the order of `all_controls`; empty if nothing was tested."""
    missing: tuple[str, ...] = ()
    """Names of the controls that were measured with too few prompts or not at all; empty if nothing was tested."""
    p: float | None = None
    """None if it was not computed."""
    q: float | None = None
    """None without `p`."""
    shown: ExemplarCount | None = None
    """None if it is not known, or nothing was tested."""

    @property
    def worst(self) -> ControlScore | None:
        """The comparison whose interval begins lowest; None if no control was measured."""
        return min(self.controls, key=lambda each: (each.low, each.auc), default=None)

    @property
    def rank(self) -> tuple[int, float]:
        """The sort key in tables: the best verdict first, equal ones by the lower end of their worst interval, the
        highest first.
        """
        return list(Verdict).index(self.verdict), -self.worst.low if self.worst else 0.0

    @property
    def columns(self) -> dict[str, Any]:
        """Values of a table row, under the names that `summary.parquet` and W&B use."""
        worst = self.worst
        return {
            "verdict": self.verdict.value,
            "verdict_reason": self.reason,
            "p": self.p,
            "q": self.q,
            "worst_control": worst.name if worst else None,
            "worst_auc": worst.auc if worst else None,
            "worst_low": worst.low if worst else None,
            "worst_high": worst.high if worst else None,
        }


_UNWRITTEN = "No usable test prompts were written for the description."
_UNDRAWABLE = "At least half of the images of the description do not show what it names."


def judge(stop: str, scores: Mapping[str, Any] | None, cause: str = "") -> UnitVerdict:
    """Derives the verdict on the description of an investigation.

    `stop` is the state of the investigation, one of `openmaia.runs.state.STATES`; `scores` the entry in `Run.scores`,
    empty or None if it is not evaluated; `cause` the error message of a failed investigation.
    """
    if stop in ("failed", "damaged"):
        return UnitVerdict(
            verdict=Verdict.FAILED, reason=f"The investigation failed: {cause or 'for no stated reason'}."
        )
    if stop in ("running", "pending"):
        return UnitVerdict(verdict=Verdict.NOT_TESTED, reason=f"The investigation is {stop}.")
    outcome = (scores or {}).get("outcome")
    if stop == "abstain" or outcome == "abstained":
        return UnitVerdict(verdict=Verdict.ABSTAINED, reason=_silence(stop))
    if not scores:
        return UnitVerdict(verdict=Verdict.NOT_TESTED, reason="The description is not evaluated yet.")
    if outcome != "tested":
        reason = _UNDRAWABLE if outcome == "undrawable" else _UNWRITTEN
        return UnitVerdict(verdict=Verdict.NOT_TESTED, reason=reason)
    return _judge_tested(scores)


def _silence(stop: str) -> str:
    if stop == "abstain":
        return "The agent found nothing that excites the unit reliably and gave no label."
    return "The investigation ended without a description."


def _judge_tested(scores: Mapping[str, Any]) -> UnitVerdict:
    stored = cast(Mapping[str, Mapping[str, Any]], scores.get("controls") or {})
    controls, missing = read_controls(stored)
    p, q = scores.get("p"), scores.get("q")
    worst = min(controls, key=lambda each: (each.low, each.auc), default=None)
    refuting = next((each for each in controls if each.high <= CHANCE), None)
    own, photographs = stored.get("auc_random", {}).get("means", (0.0, 0.0))
    why = ""
    if worst is None:
        verdict = Verdict.NOT_TESTED
        reason = f"No control has {_MIN_PROMPTS} prompts on each side; evaluate with more images."
    elif refuting is not None:
        verdict = Verdict.NOT_SUPPORTED
        reason = f"Its images do not excite the unit more than {refuting.text}."
    elif own < photographs:
        verdict, why = Verdict.NOT_SUPPORTED, "below mean"
        reason = (
            f"Its images excite the unit less than random pictures do: {own:+.2f} against {photographs:+.2f} standard "
            "deviations, on average."
        )
    elif open_points := [*_crossing(controls), *_open_p(p, q, scores.get("null"))]:
        verdict, why = Verdict.UNDECIDED, "no p" if q is None else f"q {q:.3g}" if q > LEVEL else ""
        reason = f"{'; '.join(open_points)}."
    else:
        verdict = Verdict.SUPPORTED
        reason = f"Its images excite the unit more than every control; the worst is {worst.text}; q = {q:.2g}."
    return UnitVerdict(
        verdict=verdict, reason=reason, why=why, controls=controls, missing=missing, p=p, q=q, shown=_shown(scores)
    )


def _shown(scores: Mapping[str, Any]) -> ExemplarCount | None:
    seen = cast(Mapping[str, Any], scores.get("sightings") or {})
    if not seen.get("known"):
        return None
    return ExemplarCount(exemplars=(seen["shown"], seen["known"]), photographs=(*seen["photographs"],))


def _crossing(controls: Iterable[ControlScore]) -> Iterator[str]:
    for each in controls:
        if each.low <= CHANCE:
            yield f"{each.name}: interval {each.low:.2f} to {each.high:.2f} crosses {CHANCE}"


def _open_p(p: float | None, q: float | None, null: int | None) -> Iterator[str]:
    if p is None or q is None:
        yield (
            "p is missing, the comparison with descriptions of other units of the layer and of random words: openmaia "
            "run and openmaia evaluate compute it for a whole run"
        )
    elif p > LEVEL and not (null is not None and p <= 1 / (null + 1)):
        yield f"q = {q:.2g}: descriptions of other units or random words often do as well for this unit (p = {p:.2g})"
    elif q > LEVEL and null is not None and p <= 1 / (null + 1):
        yield f"q = {q:.2g}: the null has only {null} values, so that p cannot be below {p:.2g}; test more random words"
    elif q > LEVEL:
        yield f"q = {q:.2g}: p = {p:.2g} does not hold up among the descriptions of the run"


def read_controls(stored: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[ControlScore, ...], tuple[str, ...]]:
    """Reads the comparisons of `openmaia.evaluation.scores.control_scores` with at least _MIN_PROMPTS prompts on each
    side (a photograph counts as a prompt), and the display names of all other controls.
    """
    controls = tuple(
        ControlScore(
            key=key,
            auc=one["auc"],
            low=one["low"],
            high=one["high"],
            positive=one["n"][0],
            control=one["n"][1],
            mean=one["means"][1],
        )
        for key in all_controls()
        if (one := stored.get(key)) and min(one["prompts"]) >= _MIN_PROMPTS
    )
    measured = {each.key for each in controls}
    return controls, tuple(control.name for key, control in all_controls().items() if key not in measured)


def run_verdicts(run: Run) -> dict[InvestigationId, UnitVerdict]:
    """Returns the verdicts of all investigations, in the order of `openmaia.runs.state.states`."""
    snapshot = Snapshot.of_run(run)
    return _judge_all(snapshot, snapshot.scores())


def _judge_all(
    run: Snapshot, scores: Mapping[InvestigationId, Mapping[str, Any]]
) -> dict[InvestigationId, UnitVerdict]:
    return {each: judge(one.state, scores.get(each), one.cause) for each, one in states(run).items()}


def scores_and_verdicts(run: Snapshot) -> dict[InvestigationId, dict[str, Any]]:
    """Returns for each investigation the values in `score_columns`, and other scores, by name."""
    scores = run.scores()
    return {each: scores.get(each, {}) | verdict.columns for each, verdict in _judge_all(run, scores).items()}


def write_summary(run: Run) -> None:
    """Writes summary.parquet, a table of all finished investigations with their scores and verdicts."""
    snapshot = Snapshot.of_run(run)
    snapshot.write_summary(score_columns(), scores_and_verdicts(snapshot))


def score_columns() -> Mapping[str, pa.DataType]:
    """Returns the columns of summary.parquet that are null until the run is evaluated, with all metrics."""
    texts = ("outcome", "verdict", "verdict_reason", "worst_control")
    numbers = ("images", "miss", "shown", *columns(), "p", "q", "worst_auc", "worst_low", "worst_high")
    return dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.float64())
