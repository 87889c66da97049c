"""The labels on a unit's page, each with its test images and the turns that support it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.unit.observation import ImageView, Viewer
from openmaia.reporting.browser.unit.scored import EvaluationView, ScoredImage
from openmaia.runs.records import ImageEntry, Record, Turn, mentions

_TESTED, _SUPPORTING, _EXEMPLARS = 6, 4, 8
"""Maximum numbers of images: of the test of a label, of a supporting turn, and of exemplars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportingTurn:
    """The measurements of one turn on images of a label.

    An image is one of the label if the hypothesis that it tests contains the words of the label and does not begin with
    "not". Without a hypothesis, its prompt or editing instruction must contain them.
    """

    turn: int
    """From 1."""
    images: tuple[ImageView, ...]
    """The most activating images of the label."""
    count: int
    """Number of all images of the label."""
    mean: float
    others: int
    """Number of other images that the turn measured."""
    others_mean: float | None

    @property
    def text(self) -> str:
        """Both means in words."""
        noun = "image" if self.count == 1 else "images"
        versus = f", {self.others} others {self.others_mean:.3g}" if self.others_mean is not None else ""
        return f"{self.count} {noun} of it, mean activation {self.mean:.3g}{versus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A label, with its evidence."""

    label: str
    tested: tuple[ScoredImage, ...] = ()
    """Its positive images."""
    auc: float | None = None
    """Against matched neutral images; None if the label was not tested."""
    support: tuple[SupportingTurn, ...] = ()
    listed: tuple[int, ...] = ()
    """The numbers of the turns whose hypotheses contain the label."""


def make_claim_views(record: Record, evaluation: EvaluationView | None, viewer: Viewer) -> tuple[ClaimView, ...]:
    """Returns the labels of the answer in order. `evaluation` is None if they were not tested."""
    return tuple(_claim(label, record, evaluation, viewer) for label in record.labels)


def _claim(label: str, record: Record, evaluation: EvaluationView | None, viewer: Viewer) -> ClaimView:
    tested = [image for image in evaluation.positive if image.label == label] if evaluation else []
    by_label: dict[str, float | None] = (evaluation.scores["by_label"]) if evaluation else {}
    return ClaimView(
        label=label,
        tested=tuple(sorted(tested[:_TESTED], key=lambda image: -image.activation)),
        auc=by_label.get(label),
        support=tuple(_support(label, record.turns, viewer)),
        listed=tuple(turn.index + 1 for turn in record.turns if any(mentions(each, label) for each in turn.hypotheses)),
    )


def _support(label: str, turns: Sequence[Turn], viewer: Viewer) -> Iterator[SupportingTurn]:
    for turn in turns:
        measured = {entry.id: entry for call in turn.calls for entry in call.entries if entry.activation}
        about = [entry for entry in measured.values() if _is_about(entry, label, viewer)]
        if not about:
            continue
        about.sort(key=_value, reverse=True)
        own = {entry.id for entry in about}
        others = [_value(entry) for entry in measured.values() if entry.id not in own]
        yield SupportingTurn(
            turn=turn.index + 1,
            # Outlines cannot be seen at this size. The turn has them.
            images=tuple(viewer.measured_image(entry, with_mask=False) for entry in about[:_SUPPORTING]),
            count=len(about),
            mean=fmean(map(_value, about)),
            others=len(others),
            others_mean=fmean(others) if others else None,
        )


def _is_about(entry: ImageEntry, label: str, viewer: Viewer) -> bool:
    if entry.hypothesis:
        return not entry.is_control and mentions(entry.hypothesis, label)
    return mentions(viewer.captions.texts.get(entry.id, ""), label)


def _value(entry: ImageEntry) -> float:
    return float(entry.activation["value"]) if entry.activation else 0.0


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
