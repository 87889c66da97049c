"""What the agent did in a turn, as one line with a few pictures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.reporting.browser.pages import short_number
from openmaia.reporting.browser.unit.observation import ImageView, Viewer
from openmaia.runs.records import LOOKED_UP, Did, ImageEntry, Stop, Turn

_PICTURES = 5
_NAMED = 3
"""Hypotheses that a line names; it counts the others."""
_KINDS = {
    "top": "that excite it most",
    "bottom": "that excite it least",
    "random": "drawn at random",
    "ladder": "from weak to strong",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisChanges:
    """A list of hypotheses, compared with the previous one."""

    current: tuple[tuple[str, bool], ...]
    """Each hypothesis, and whether it is new."""
    dropped: tuple[str, ...]
    is_first: bool
    """Whether there was no list before."""


@dataclass(frozen=True, slots=True)
class StoryPart:
    """A part of a line."""

    text: str
    is_quoted: bool = False
    """Whether these are words of the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The line of a turn."""

    did: str
    """What it did, in a sentence."""
    found: tuple[StoryPart, ...]
    """What came of it."""
    pictures: tuple[ImageView, ...]


def compare_hypotheses(before: Sequence[str], now: Sequence[str]) -> HypothesisChanges:
    """Compares lists of hypotheses, ignoring case and white space. If `now` is empty, none counts as dropped."""
    known, kept = ({_normalised(text) for text in texts} for texts in (before, now))
    return HypothesisChanges(
        current=tuple((text, _normalised(text) not in known) for text in now),
        dropped=tuple(text for text in before if _normalised(text) not in kept) if now else (),
        is_first=not before,
    )


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())


def tell_turn(turn: Turn, changes: HypothesisChanges, stop: Stop | None, viewer: Viewer) -> Story:
    """Returns the line of a turn.

    Args:
        turn: The turn.
        changes: What it changed in the list of hypotheses.
        stop: How the investigation ended, for its last turn; None for others.
        viewer: Makes its pictures.
    """
    entries = [entry for call in turn.calls for entry in call.entries]
    measured = _measured(entries)
    found = (*_strongest(entries, measured, viewer), *_guesses(changes))
    return Story(did=_did(turn, entries, stop), found=found, pictures=_pictures(entries, measured, viewer))


def _did(turn: Turn, entries: Sequence[ImageEntry], stop: Stop | None) -> str:
    did = [*_acts(entries)]
    if turn.failed_test:
        did.append("Answered; the program’s own test sent the answer back")
    elif stop in (Stop.ANSWER, Stop.ABSTAIN) and not turn.code:
        did.append("Answered" if stop is Stop.ANSWER else "Gave no description")
    elif not did:
        did.append("Ran an experiment without images" if turn.code else "Wrote no experiment")
    if turn.raised:
        did.append("the experiment ended with an error")
    first, *others = (each if place == 0 else each[0].lower() + each[1:] for place, each in enumerate(did))
    return f"{', '.join([first, *others[:-1]])}{' and ' if others else ''}{''.join(others[-1:])}."


def _acts(entries: Sequence[ImageEntry]) -> Iterator[str]:
    count = Counter(entry.did for entry in entries)
    kinds = Counter(entry.prompt for entry in entries if entry.did is Did.EXEMPLAR)
    for kind, number in kinds.items():
        yield f"Looked at {_images(number)} of the dataset {_KINDS.get(kind, '')}".rstrip()
    if number := count[Did.BANK]:
        yield f"Looked at {_images(number)} of the bank"
    if number := count[Did.SHARED]:
        yield f"Looked at {_images(number)} of other agents"
    if number := count[Did.DREW] + count[Did.COPIED]:
        yield f"Drew {_images(number)}"
    if number := count[Did.EDITED]:
        yield f"Changed {_images(number)}"
    if number := count[Did.MADE]:
        yield f"Made {_images(number)} with its own code"
    if count[Did.MEASURED] and not (count[Did.DREW] or count[Did.EDITED] or count[Did.COPIED]):
        yield f"Measured {_images(count[Did.MEASURED])}"


def _images(number: int) -> str:
    return f"{number:,} image{'' if number == 1 else 's'}"


def _measured(entries: Sequence[ImageEntry]) -> list[ImageEntry]:
    """Returns an entry for each different image with an activation: of those that were made, if any were, else of all.
    The most activating come first.
    """
    known = [entry for entry in entries if entry.activation is not None]
    own = [entry for entry in known if entry.did not in LOOKED_UP] or known
    unique = {entry.original: entry for entry in own}
    return sorted(unique.values(), key=_value, reverse=True)


def _value(entry: ImageEntry) -> float:
    return float(entry.activation["value"]) if entry.activation else 0.0


def _strongest(entries: Sequence[ImageEntry], measured: Sequence[ImageEntry], viewer: Viewer) -> Iterator[StoryPart]:
    changes = _edits(entries, measured)
    if changes:
        base, edited = changes[0]
        yield StoryPart("Largest change: ")
        yield StoryPart(viewer.captions.entries[edited.of].prompt, is_quoted=True)
        yield StoryPart(f", {short_number(_value(base))} to {short_number(_value(edited))}. ")
    elif measured and measured[0].did is not Did.EXEMPLAR:
        yield StoryPart("Strongest: ")
        caption = viewer.captions.texts.get(measured[0].id, "")
        if caption:
            yield StoryPart(caption, is_quoted=True)
            yield StoryPart(", ")
        yield StoryPart(f"{short_number(_value(measured[0]))}. ")


def _edits(entries: Sequence[ImageEntry], measured: Sequence[ImageEntry]) -> list[tuple[ImageEntry, ImageEntry]]:
    """Returns the measurements of images before and after an edit, the largest difference first."""
    values = {entry.of: entry for entry in measured if entry.of}
    pairs = [
        (values[entry.of], values[entry.id])
        for entry in entries
        if entry.did is Did.EDITED and entry.of in values and entry.id in values
    ]
    return sorted(pairs, key=lambda pair: abs(_value(pair[0]) - _value(pair[1])), reverse=True)


def _guesses(changes: HypothesisChanges) -> Iterator[StoryPart]:
    new = [text for text, is_new in changes.current if is_new]
    yield from _named("First guesses: " if changes.is_first else "New guesses: ", new)
    yield from _named("Dropped: ", changes.dropped)


def _named(title: str, texts: Sequence[str]) -> Iterator[StoryPart]:
    if not texts:
        return
    yield StoryPart(title)
    for number, text in enumerate(texts[:_NAMED]):
        if number:
            yield StoryPart(", ")
        yield StoryPart(text, is_quoted=True)
    rest = len(texts) - _NAMED
    yield StoryPart(f" and {rest} more. " if rest > 0 else ". ")


def _pictures(entries: Sequence[ImageEntry], measured: Sequence[ImageEntry], viewer: Viewer) -> tuple[ImageView, ...]:
    """Returns the two largest changes by edits, or else images from the strongest to the weakest; the first exemplars."""
    changes = _edits(entries, measured)
    if changes:
        chosen = [each for pair in changes[: _PICTURES // 2] for each in pair]
    elif (measured and measured[0].did in LOOKED_UP) or len(measured) <= _PICTURES:
        chosen = list(measured[:_PICTURES])
    else:
        last = len(measured) - 1
        chosen = [measured[round(step * last / (_PICTURES - 1))] for step in range(_PICTURES)]
    return tuple(viewer.measured_image(entry, with_mask=False) for entry in chosen)
