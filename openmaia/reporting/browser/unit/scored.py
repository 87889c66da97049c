"""Prepares the scores and test images of an evaluation for the page of a unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.evaluation.analysis.sanity import notes
from openmaia.reporting.browser.unit.pictures import PagePictures, Picture
from openmaia.runs import tables

METRICS = (
    "auc", "auc_worst", "auc_unrelated", "auc_random", "top1",
    "detection_auprc", "detection_f1", "detection_correlation", "detection_iou", "detection_responsiveness", "detection_purity",
    "detection_balanced_accuracy",
)  # fmt: skip
"""The metrics of a description that the page of its unit shows."""
ROLES = {
    "positive": "images of the description",
    "neutral": "matched neutral images",
    "unrelated": "unrelated prompts",
    "random": "photographs",
}
"""For each kind of test images its name on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredImage:
    """An image with which a description was tested."""

    picture: Picture
    label: str
    prompt: str
    missing_terms: tuple[str, ...] = ()
    verdict: str
    """Whether the image shows what was requested, and the name of the generator or judge that decided, in words."""
    activation: float
    share: float
    """The activation as a share of the highest activation of all images of the test; 0 for a negative one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DotRow:
    """The activations on all test images of one kind, as positions on an axis of length 1, and their mean."""

    name: str
    dots: tuple[float, ...]
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """What the page of a unit shows of the evaluation, in which its description was tested with images."""

    scores: dict[str, Any]
    positive: tuple[ScoredImage, ...]
    neutral: tuple[ScoredImage, ...]
    rows: tuple[DotRow, ...]
    """The activations by kind of image, on one axis from `low` to `high`, which contains 0."""
    low: float
    high: float
    failed_checks: tuple[str, ...]
    """A sentence for each metric on the page that fails a test of `openmaia.evaluation.analysis.sanity`."""


def evaluation_view(data: bytes, pictures: PagePictures) -> EvaluationView:
    """Prepares the evaluation of a description for the page of its unit.

    Args:
        data: The content of the evaluation's file.
        pictures: Embeds the test images in the page.

    Raises:
        StoreError: The data cannot be read.
    """
    rows, header = tables.load(data)
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
            share=share(row["activation"], high),
        )

    return EvaluationView(
        scores=header["scores"],
        positive=tuple(tested(row) for row in rows if row["role"] == "positive"),
        neutral=tuple(tested(row) for row in rows if row["role"] == "neutral"),
        rows=tuple(_dots(rows, low, high)),
        low=low,
        high=high,
        failed_checks=tuple(notes(METRICS)),
    )


def share(value: float, high: float) -> float:
    """Returns an activation as a share of the highest one, `high`, for the length of a bar; 0 if it is negative."""
    return max(value, 0.0) / high if high > 0 else 0.0


def _dots(rows: Sequence[Mapping[str, Any]], low: float, high: float) -> list[DotRow]:
    groups = {role: [float(row["activation"]) for row in rows if row["role"] == role] for role in ROLES}
    span = (high - low) or 1.0
    return [
        DotRow(
            name=ROLES[role],
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
