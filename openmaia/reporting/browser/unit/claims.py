"""Prepares the claims on a unit's page: each label of the answer, its test images, and the turns that support it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.unit.captions import arguments
from openmaia.reporting.browser.unit.observation import ImageView, Viewer
from openmaia.reporting.browser.unit.scored import EvaluationView, ScoredImage
from openmaia.runs.records import ImageEntry, Record, Turn

TESTED, SUPPORTING, EXEMPLARS = 6, 4, 8
"""Maximum numbers of images that are shown: of the test of a label, of a supporting turn, and of a unit's exemplars
(the dataset images that excite it most)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportingTurn:
    """The measurements of one turn on images that test a label of the answer.

    The agent's code can name the hypothesis that an image tests. In this case, the image tests the label if the
    hypothesis contains the words of the label and does not begin with "not". If no hypothesis is named, the image tests
    the label if its prompt or editing instruction contains these words.
    """

    turn: int
    """The number of the turn, from 1."""
    images: tuple[ImageView, ...]
    """The most activating of the images that test the label."""
    count: int
    """Number of all images of the turn that test the label."""
    mean: float
    """Mean activation on these `count` images."""
    others: int
    """Number of the other images that the turn measured."""
    others_mean: float | None
    """Mean activation on the other images; None if there are none."""

    @property
    def text(self) -> str:
        """A text with two mean activations of the turn: on the images that test the label, and on its other images."""
        noun = "image" if self.count == 1 else "images"
        versus = f", {self.others} others {self.others_mean:.3g}" if self.others_mean is not None else ""
        return f"{self.count} {noun} of it, mean activation {self.mean:.3g}{versus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A label of the agent's answer about a unit, with its evidence, for the unit's page in a report.

    The evidence consists of the images on which the label was tested after the investigation, and of the agent's turns
    with measurements on images that test the label.
    """

    label: str
    tested: tuple[ScoredImage, ...] = ()
    """Images that were generated from the label for the evaluation."""
    auc: float | None = None
    """The AUC of the label's images against matched neutral images; None if the label was not tested."""
    support: tuple[SupportingTurn, ...] = ()
    listed: tuple[int, ...] = ()
    """The numbers of the turns whose hypotheses contain the label."""


def claims(record: Record, evaluation: EvaluationView | None, viewer: Viewer) -> tuple[ClaimView, ...]:
    """Returns the labels of the agent's answer, in order, each with its test images and its supporting turns.

    Args:
        record: The record of the investigation.
        evaluation: The results of the test of the answer. None if it was not tested.
        viewer: Prepares images for the page.
    """
    return tuple(_claim(label, record, evaluation, viewer) for label in record.labels)


def _claim(label: str, record: Record, evaluation: EvaluationView | None, viewer: Viewer) -> ClaimView:
    tested = [image for image in evaluation.positive if image.label == label] if evaluation else []
    by_label: dict[str, float | None] = (evaluation.scores.get("auc_by_label") or {}) if evaluation else {}
    return ClaimView(
        label=label,
        tested=tuple(sorted(tested[:TESTED], key=lambda image: -image.activation)),
        auc=by_label.get(label),
        support=tuple(_support(label, record.turns, viewer)),
        listed=tuple(turn.index + 1 for turn in record.turns if any(_holds(each, label) for each in turn.hypotheses)),
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
            images=tuple(viewer.measured_image(entry, with_mask=False) for entry in about[:SUPPORTING]),
            count=len(about),
            mean=fmean(map(_value, about)),
            others=len(others),
            others_mean=fmean(others) if others else None,
        )


def _is_about(entry: ImageEntry, label: str, viewer: Viewer) -> bool:
    """Returns whether an image tests a label.

    If the agent named the hypothesis that the image tests, this hypothesis must contain the words of the label and must
    not begin with "not". Otherwise the prompt of the image must contain the words of the label.
    """
    if entry.hypothesis:
        return not entry.hypothesis.startswith("not ") and _holds(entry.hypothesis, label)
    return _holds(viewer.captions.texts.get(entry.id, ""), label)


def _holds(text: str, label: str) -> bool:
    words = _words(label)
    return bool(words.strip()) and words in _words(text)


@lru_cache(maxsize=4096)
def _words(text: str) -> str:
    return " " + " ".join(re.findall(r"\w+", text.casefold())) + " "


def _value(entry: ImageEntry) -> float:
    return float(entry.activation["value"]) if entry.activation else 0.0


def top_entries(record: Record) -> Sequence[ImageEntry]:
    """Returns the top exemplars of a record's unit, the most activating first; empty if the agent requested none."""
    for call in (call for turn in record.turns for call in turn.calls):
        if call.name == "dataset_exemplars" and call.entries and arguments(call) == ["top"]:
            return call.entries
    return ()


def exemplars(record: Record, viewer: Viewer, count: int = EXEMPLARS) -> tuple[ImageView, ...]:
    """Returns at most `count` top exemplars of a record's unit, with outlines around the areas where it responds."""
    return tuple(viewer.measured_image(entry) for entry in top_entries(record)[:count])


def exemplar_images(record: Record, count: int) -> list[tuple[EncodedImage, bytes | None]]:
    """Returns the first `count` top exemplars of a record's unit as pairs of an image and a mask.

    Exemplars whose images were not stored are left out. The mask says where the unit responds, with one bit per pixel,
    packed row by row. It is None if the exemplar has none.
    """
    images = record.images
    found = [(images.get(entry.original), entry.mask) for entry in top_entries(record)[:count]]
    return [(image, mask) for image, mask in found if image is not None and image.data]
