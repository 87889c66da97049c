"""The labels on a unit's page, each with its test images and the turns that support it."""

from dataclasses import dataclass

from openmaia.analysis.support import SupportingTurn, find_listing_turns, find_support
from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.unit.observation import ImageView, Viewer
from openmaia.reporting.browser.unit.scored import EvaluationView, ScoredImage
from openmaia.runs.records import Record

_TESTED, _SUPPORTING, _EXEMPLARS = 6, 4, 8
"""Maximum numbers of images: of the test of a label, of a supporting turn, and of exemplars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportView:
    """A turn that supports a label."""

    turn: int
    """From 1."""
    images: tuple[ImageView, ...]
    text: str
    """Both means in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A label, with its evidence."""

    label: str
    tested: tuple[ScoredImage, ...] = ()
    """Its positive images."""
    auc: float | None = None
    """Against matched neutral images; None if the label was not tested."""
    support: tuple[SupportView, ...] = ()
    listed: tuple[int, ...] = ()
    """The numbers of the turns whose hypotheses contain the label."""


def make_claim_views(record: Record, evaluation: EvaluationView | None, viewer: Viewer) -> tuple[ClaimView, ...]:
    """Returns the labels of the answer in order. `evaluation` is None if they were not tested."""
    return tuple(_claim(label, record, evaluation, viewer) for label in record.labels)


def _claim(label: str, record: Record, evaluation: EvaluationView | None, viewer: Viewer) -> ClaimView:
    tested = [image for image in evaluation.positive if image.label == label] if evaluation else []
    by_label: dict[str, float | None] = evaluation.scores["by_label"] if evaluation else {}
    return ClaimView(
        label=label,
        tested=tuple(sorted(tested[:_TESTED], key=lambda image: -image.activation)),
        auc=by_label.get(label),
        support=tuple(_support(each, viewer) for each in find_support(label, record.turns, viewer.captions.texts)),
        listed=find_listing_turns(label, record.turns),
    )


def _support(found: SupportingTurn, viewer: Viewer) -> SupportView:
    count = len(found.images)
    versus = f", {found.others} others {found.others_mean:.3g}" if found.others_mean is not None else ""
    return SupportView(
        turn=found.turn,
        # Outlines cannot be seen at this size. The turn has them.
        images=tuple(viewer.measured_image(entry, with_mask=False) for entry in found.images[:_SUPPORTING]),
        text=f"{count} image{'' if count == 1 else 's'} of it, mean activation {found.mean:.3g}{versus}",
    )


def show_exemplars(record: Record, viewer: Viewer, count: int = _EXEMPLARS) -> tuple[ImageView, ...]:
    """Returns at most `count` top exemplars, outlined."""
    return tuple(viewer.measured_image(entry) for entry in record.top_exemplars[:count])


def find_exemplar_images(record: Record, count: int) -> list[tuple[EncodedImage, bytes | None]]:
    """Returns the first `count` top exemplars with stored images, each with its mask or None.

    A mask has one bit per pixel, packed row by row.
    """
    images = record.images
    found = [(images.get(entry.original), entry.mask) for entry in record.top_exemplars[:count]]
    return [(image, mask) for image, mask in found if image is not None and image.data]
