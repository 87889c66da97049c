"""The scores and test images of an evaluation on the page of a unit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openmaia.core.errors import StoreError
from openmaia.evaluation.analysis.sanity import judged_metrics, notes
from openmaia.evaluation.metric import Metric, metrics_shown
from openmaia.evaluation.storage import check_header
from openmaia.reporting.browser.unit.pictures import SMALL, Origin, PagePictures, Picture
from openmaia.runs import tables
from openmaia.runs.facts import stored_scores

LARGE = 8
"""Images of the description that a page shows large."""


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
    shows: bool | None = None
    """Whether it shows what was requested; None if unknown. Scores leave out images that do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """What the page shows of an evaluation."""

    scores: dict[str, Any]
    metrics: tuple[tuple[Metric, float], ...]
    """Those for the page of a unit that were measured."""
    by_role: dict[str, tuple[ScoredImage, ...]]
    """The images by `Stimulus.role`. The most activating of the first role come first."""
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

    def tested(row: Mapping[str, Any], side: int) -> ScoredImage:
        return ScoredImage(
            picture=pictures.picture(row["digest"], row["data"] or b"", side=side, origin=_origin(row)),
            label=row["label"] or "",
            prompt=row["prompt"] or "",
            missing_terms=tuple(row["missing_terms"] or ()),
            verdict=_verdict(row),
            activation=float(row["activation"]),
            shows=row["shows"],
        )

    ordered = sorted(rows, key=lambda row: -float(row["activation"]))
    by_role = {
        role: tuple(
            tested(row, 0 if role == "positive" and place < LARGE else SMALL)
            for place, row in enumerate(row for row in ordered if row["role"] == role)
        )
        for role in ("positive", *sorted({row["role"] for row in rows} - {"positive"}))
    }

    return EvaluationView(
        scores=scores,
        metrics=tuple((each, value) for each in metrics_shown("page") if (value := scores.get(each.name)) is not None),
        by_role=by_role,
        failed_checks=tuple(notes([name for name in judged_metrics() if scores.get(name) is not None])),
    )


def _origin(row: Mapping[str, Any]) -> Origin:
    return Origin.DATASET if row["role"] == "random" or not row["prompt"] else Origin.DRAWN


def _verdict(row: Mapping[str, Any]) -> str:
    verdicts = {True: "shows what was asked", False: "does not show what was asked", None: "not verified"}
    verdict = verdicts[row["shows"]]
    return f"{verdict} ({row['verified_by']})" if row["verified_by"] else verdict
