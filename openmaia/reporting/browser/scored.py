"""Prepares the results of an evaluation for the page of a unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from markupsafe import Markup

from openmaia.core.images import EncodedImage
from openmaia.evaluation.analysis.sanity import notes
from openmaia.evaluation.prompts import PROMPT_ROLES
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.reporting.figures.charts import value_strips
from openmaia.reporting.figures.style import svg
from openmaia.runs import tables

SIDE = 128

METRICS = (
    "auc", "auc_worst", "auc_unrelated", "auc_random", "top1",
    "detection_auprc", "detection_f1", "detection_correlation", "detection_iou",
)  # fmt: skip
"""The metrics that the page of a unit shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredImage:
    """An image with which a description was tested."""

    uri: str
    label: str
    prompt: str
    missing_terms: tuple[str, ...]
    verdict: str
    """Whether the image shows what was requested, and the name of the generator or judge that decided, in words."""
    activation: float
    height: float
    """The activation, scaled to 0 for the lowest and 1 for the highest activation of all images of the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """What the section about the evaluation shows on the page of a unit."""

    scores: dict[str, Any]
    pairs: tuple[tuple[ScoredImage | None, ScoredImage | None], ...]
    """Each positive image with its neutral one. If there are fewer images of one role, None takes their place."""
    strips: Markup
    """The chart of activations by kind of image; empty if there are no images."""
    failed_checks: tuple[str, ...]
    """A sentence for each metric on the page that fails a sanity test."""


def evaluation_view(data: bytes, thumbnails: Thumbnails) -> EvaluationView:
    """Prepares a stored evaluation for the page of its unit.

    Raises:
        StoreError: The data cannot be read.
    """
    rows, header = tables.load(data)
    values = [row["activation"] for row in rows]
    low, high = min(values, default=0.0), max(values, default=0.0)

    def tested(row: Mapping[str, Any]) -> ScoredImage:
        return ScoredImage(
            uri=thumbnails.uri(EncodedImage(data=row["data"] or b""), SIDE),
            label=row["label"] or "",
            prompt=row["prompt"] or "",
            missing_terms=tuple(row["missing_terms"] or ()),
            verdict=_verdict(row),
            activation=row["activation"],
            height=(row["activation"] - low) / ((high - low) or 1.0),
        )

    positive, neutral = ([tested(row) for row in rows if row["role"] == role] for role in PROMPT_ROLES)
    return EvaluationView(
        scores=header["scores"],
        pairs=tuple(zip_longest(positive, neutral)),
        strips=_strips(rows),
        failed_checks=tuple(notes(METRICS)),
    )


def _verdict(row: Mapping[str, Any]) -> str:
    verdicts = {True: "shows what was asked", False: "does not show what was asked", None: "not verified"}
    verdict = verdicts[row["shows"]]
    return f"{verdict} ({row['verified_by']})" if row["verified_by"] else verdict


def _strips(rows: Sequence[Mapping[str, Any]]) -> Markup:
    names: dict[str, str] = {role: role for role in PROMPT_ROLES}
    names |= {"unrelated": "unrelated prompts", "random": "photographs"}
    groups = {name: [row["activation"] for row in rows if row["role"] == role] for role, name in names.items()}
    groups = {name: values for name, values in groups.items() if values}
    return svg(value_strips(groups, first="positive"), "Activations by kind of image") if groups else Markup()
