"""The scores and test images of an evaluation on the page of a unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.core.errors import StoreError
from openmaia.evaluation.analysis.sanity import judged_metrics, notes
from openmaia.evaluation.metric import Metric, metrics_shown
from openmaia.evaluation.storage import check_header
from openmaia.reporting.browser.unit.pictures import PagePictures, Picture
from openmaia.runs import tables
from openmaia.runs.facts import stored_scores

_ROLES = {
    "positive": "images of the description",
    "neutral": "matched neutral images",
    "unrelated": "unrelated prompts",
    "random": "photographs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredImage:
    """An image of a trial or of the confirmation, and the unit's activation on it."""

    picture: Picture
    label: str
    """The label that it tests, also of a neutral image or near miss; empty if prompts were not written for single
    labels."""
    prompt: str
    missing_terms: tuple[str, ...] = ()
    verdict: str
    """A remark: whether it shows what was requested and who decided this, what a near miss shows, or the percentile."""
    activation: float
    share: float
    """The activation as a share of the highest one of the test; 0 for a negative one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DotRow:
    """The activations on test images of one kind, as positions on an axis from 0 to 1."""

    name: str
    """The kind, such as "matched neutral images"."""
    dots: tuple[float, ...]
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """What the page shows of an evaluation."""

    scores: dict[str, Any]
    metrics: tuple[tuple[Metric, float], ...]
    """Those for the page of a unit that were measured."""
    positive: tuple[ScoredImage, ...]
    neutral: tuple[ScoredImage, ...]
    rows: tuple[DotRow, ...]
    """The activations by kind of image, on one axis from `low` to `high`, which contains 0."""
    low: float
    high: float
    failed_checks: tuple[str, ...]
    """A caveat, such as "AUC is blind to missing labels", for each metric that did not pass the sanity tests
    (`openmaia.evaluation.analysis.sanity`)."""


def make_evaluation_view(data: bytes, pictures: PagePictures) -> EvaluationView:
    """Prepares an evaluation's file for the page. Raises StoreError if it cannot be read."""
    rows, header = tables.load(data)
    check_header(header)
    if "facts" not in header:
        raise StoreError("an evaluation without scores")
    scores = stored_scores(header)
    values = [float(row["activation"]) for row in rows]
    low, high = min([0.0, *values]), max([0.0, *values])

    def tested(row: Mapping[str, Any]) -> ScoredImage:
        return ScoredImage(
            picture=pictures.picture(row["digest"], row["data"] or b""),
            label=row["label"] or "",
            prompt=row["prompt"] or "",
            missing_terms=tuple(row["missing_terms"] or ()),
            verdict=_verdict(row),
            activation=row["activation"],
            share=compute_share(row["activation"], high),
        )

    return EvaluationView(
        scores=scores,
        metrics=tuple((each, value) for each in metrics_shown("page") if (value := scores.get(each.name)) is not None),
        positive=tuple(tested(row) for row in rows if row["role"] == "positive"),
        neutral=tuple(tested(row) for row in rows if row["role"] == "neutral"),
        rows=tuple(_dots(rows, low, high)),
        low=low,
        high=high,
        failed_checks=tuple(notes([name for name in judged_metrics() if scores.get(name) is not None])),
    )


def compute_share(value: float, high: float) -> float:
    """Returns an activation as a share of the highest one; 0 if it is negative."""
    return max(value, 0.0) / high if high > 0 else 0.0


def _dots(rows: Sequence[Mapping[str, Any]], low: float, high: float) -> list[DotRow]:
    groups = {role: [float(row["activation"]) for row in rows if row["role"] == role] for role in _ROLES}
    span = (high - low) or 1.0
    return [
        DotRow(
            name=_ROLES[role],
            dots=tuple((value - low) / span for value in values),
            mean=(sum(values) / len(values) - low) / span,
        )
        for role, values in groups.items()
        if values
    ]


def _verdict(row: Mapping[str, Any]) -> str:
    verdicts = {True: "shows what was asked", False: "does not show what was asked", None: "not verified"}
    verdict = verdicts[row["shows"]]
    return f"{verdict} ({row['verified_by']})" if row["verified_by"] else verdict
