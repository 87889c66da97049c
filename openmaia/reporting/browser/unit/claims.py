"""The labels on a unit's page, each with the turns that support it, and the exemplars of a record."""

from dataclasses import dataclass

from openmaia.analysis.support import SupportingTurn, find_listing_turns, find_support
from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.unit.captions import Captions
from openmaia.reporting.browser.unit.observation import ImageView, Viewer
from openmaia.reporting.browser.unit.scored import EvaluationView
from openmaia.runs.records import Record

_EXEMPLARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportView:
    """A turn that supports a label."""

    turn: int
    """From 1."""
    text: str
    """Both means in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A label, with its evidence."""

    label: str
    auc: float | None = None
    """Against matched neutral images; None if the label was not tested."""
    support: tuple[SupportView, ...] = ()
    listed: tuple[int, ...] = ()
    """The numbers of the turns whose hypotheses contain the label."""


def make_claim_views(record: Record, evaluation: EvaluationView | None, captions: Captions) -> tuple[ClaimView, ...]:
    """Returns the labels of the answer in order. `evaluation` is None if they were not tested."""
    by_label: dict[str, float | None] = evaluation.scores["by_label"] if evaluation else {}
    return tuple(
        ClaimView(
            label=label,
            auc=by_label.get(label),
            support=tuple(map(_support, find_support(label, record.turns, captions.texts))),
            listed=find_listing_turns(label, record.turns),
        )
        for label in record.labels
    )


def _support(found: SupportingTurn) -> SupportView:
    count = len(found.images)
    versus = f"; {found.others} others {found.others_mean:.3g}" if found.others_mean is not None else ""
    text = f"{count} image{'' if count == 1 else 's'} of it, mean activation {found.mean:.3g}{versus}"
    return SupportView(turn=found.turn, text=text)


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
