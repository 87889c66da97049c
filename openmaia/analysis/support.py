"""Which turns of an investigation list or support a label."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openmaia.runs.records import Did, ImageEntry, Turn, mentions


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportingTurn:
    """The measurements of one turn on images of a label.

    An image is one of the label if it tests a hypothesis with the words of the label and is no control. Without a
    hypothesis, its prompt must contain them. An edited image then is none, because an edit may remove what the prompt names.
    """

    turn: int
    """From 1."""
    images: tuple[ImageEntry, ...]
    """Those of the label, the most activating first."""
    mean: float
    others: int
    """Number of other images that the turn measured."""
    others_mean: float | None


def find_support(label: str, turns: Sequence[Turn], texts: Mapping[str, str]) -> Iterator[SupportingTurn]:
    """Yields the turns that measured images of a label. `texts` are the prompts and editing instructions of images."""
    edited = _find_edited(turns)
    for turn in turns:
        measured = {entry.id: entry for call in turn.calls for entry in call.entries if entry.activation}
        about = [entry for entry in measured.values() if _is_about(entry, label, texts, edited)]
        if about:
            own = {entry.id for entry in about}
            others = [_value(entry) for entry in measured.values() if entry.id not in own]
            yield SupportingTurn(
                turn=turn.index + 1,
                images=tuple(sorted(about, key=_value, reverse=True)),
                mean=fmean(map(_value, about)),
                others=len(others),
                others_mean=fmean(others) if others else None,
            )


def find_listing_turns(label: str, turns: Sequence[Turn]) -> tuple[int, ...]:
    """Returns the numbers, from 1, of the turns whose hypotheses contain a label."""
    return tuple(turn.index + 1 for turn in turns if any(mentions(each, label) for each in turn.hypotheses))


def _find_edited(turns: Sequence[Turn]) -> set[str]:
    """Returns the ids of edited images, and of their measurements."""
    edited: set[str] = set()
    for entry in (entry for turn in turns for call in turn.calls for entry in call.entries):
        if entry.did is Did.EDITED or entry.of in edited:
            edited.add(entry.id)
    return edited


def _is_about(entry: ImageEntry, label: str, texts: Mapping[str, str], edited: Collection[str]) -> bool:
    if entry.hypothesis:
        return not entry.is_control and mentions(entry.hypothesis, label)
    return entry.id not in edited and mentions(texts.get(entry.id, ""), label)


def _value(entry: ImageEntry) -> float:
    return float(entry.activation["value"]) if entry.activation else 0.0
