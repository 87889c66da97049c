"""Prepares the scores and test images of an evaluation for the page of a unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.core.errors import StoreError
from openmaia.evaluation.analysis.sanity import notes
from openmaia.evaluation.storage import check_header
from openmaia.reporting.browser.unit.pictures import PagePictures, Picture
from openmaia.runs import tables

METRICS = (
    "auc", "auc_worst", "auc_unrelated", "auc_random", "top1",
    "detection_auprc", "detection_f1", "detection_correlation", "detection_iou", "detection_responsiveness", "detection_purity",
    "detection_balanced_accuracy", "detection_fuzzing",
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
    """An image with which the answer of an agent was tested, and the unit's activation on it.

    There are two such tests. The agent loop tests an answer at once: it compares images of a label with near misses,
    which show the same scene without what the label names. The later evaluation compares them with neutral images.
    """

    picture: Picture
    label: str
    """The label that the image tests. For a neutral image or near miss, the label of the image with which it is
    compared. Empty if the prompts were not written for single labels."""
    prompt: str
    missing_terms: tuple[str, ...] = ()
    """Terms of the prompt that the generator could not show."""
    verdict: str
    """A remark below the image. In the evaluation: whether the image shows what was requested, and which generator or
    judge decided this. In the test by the agent loop: what a near miss shows, or the percentile of the activation."""
    activation: float
    share: float
    """The activation as a share of the highest activation of all images of the test; 0 for a negative one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DotRow:
    """The activations on all test images of one kind (such as positive or neutral), as positions on an axis.

    Position 0 is the low end of the axis, and 1 the high end.
    """

    name: str
    """The kind of images, such as "matched neutral images"."""
    dots: tuple[float, ...]
    mean: float
    """The position of the mean activation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """What the page of a unit shows of the evaluation, in which its description was tested with images."""

    scores: dict[str, Any]
    """The scores of the description by name, such as `auc`."""
    positive: tuple[ScoredImage, ...]
    """The images that were generated from the description or its labels."""
    neutral: tuple[ScoredImage, ...]
    """The images from neutral prompts, which do not show what the description names."""
    rows: tuple[DotRow, ...]
    """The activations by kind of image, on one axis from `low` to `high`, which contains 0."""
    low: float
    high: float
    failed_checks: tuple[str, ...]
    """A caveat, such as "AUC is blind to missing labels", for each metric on the page that failed a sanity test or was
    not put to these tests of metrics (`openmaia.evaluation.analysis.sanity`)."""


def evaluation_view(data: bytes, pictures: PagePictures) -> EvaluationView:
    """Prepares the evaluation of a description for the page of its unit.

    Args:
        data: The content of the evaluation's file.
        pictures: Embeds the test images in the page.

    Raises:
        StoreError: The data cannot be read.
    """
    rows, header = tables.load(data)
    check_header(header)
    if "scores" not in header:
        raise StoreError("an evaluation without scores")
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
