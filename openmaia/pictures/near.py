"""Pictures of a label, each beside a near miss: one that differs from it as little as words allow."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.pictures import phrases
from openmaia.pictures.vocabulary import Kind, Word, find

CLOSE, DROPPED, APART = "one word changed", "a hypothesis that was dropped", "unrelated"
"""How a near miss was found; the last is none, where nothing closer is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """prompt, near: of the two pictures. shows: what the near one shows in the label's place. control: see CLOSE."""

    label: str
    prompt: str
    near: str
    shows: str
    control: str


def pairs(labels: Sequence[str], dropped: Sequence[str], n: int) -> list[Near]:
    """n pairs, the labels taking turns, at least one for each. dropped: hypotheses that were considered and given up. No
    near miss shows a word of any label."""
    avoid = [word.name for label in labels for word in find(label)]
    return [
        _near(labels[at % len(labels)], at // len(labels), avoid, dropped)
        for at in range(max(n, len(labels)) if labels and n else 0)
    ]


def _near(label: str, index: int, avoid: Sequence[str], dropped: Sequence[str]) -> Near:
    words = find(label)
    if not words:
        return _unknown(label, index, dropped)
    colour = next((w.name for w in words if w.kind is Kind.COLOUR), "")
    carrier = next((w.name for w in words if w.kind in (Kind.SHAPE, Kind.PATTERN)), "")
    if len(words) == 2 and colour and carrier and not _rest(label):
        return _figure(label, colour, carrier, index, avoid)
    if len(words) == 1 and not _rest(label):
        word = words[0].name
        rival = phrases.rival(word, index, avoid)
        # Both are avoided in both, or a word would change the ground along with the figure.
        apart = (*avoid, rival)
        return _made(label, phrases.single(word, index, apart), phrases.single(rival, index, apart), rival)
    return _exchanged(label, words, index, avoid)


def _figure(label: str, colour: str, carrier: str, index: int, avoid: Sequence[str]) -> Near:
    """Half of the combination stays."""
    changed = {"colour": colour, "carrier": carrier}
    half = ("colour", "carrier")[index % 2]
    changed[half] = phrases.rival(changed[half], index, avoid)
    apart = (*avoid, changed["colour"])
    positive, near = (phrases.figure(k, c, apart, index) for k, c in ((carrier, colour), (changed["carrier"], changed["colour"])))  # fmt: skip
    return _made(label, positive, near, f"{changed['colour']} {changed['carrier']}")


def _exchanged(label: str, words: Sequence[Word], index: int, avoid: Sequence[str]) -> Near:
    """One word of the label for another of its kind, in turn."""
    word = words[index % len(words)]
    spelled = next((name for name in sorted((word.name, *word.aliases), key=len, reverse=True) if _in(name, label)), "")
    rival = phrases.rival(word.name, index, avoid)
    shows = re.sub(rf"\b{re.escape(spelled)}(?:e?s)?\b", rival, label, flags=re.IGNORECASE)
    return _made(label, f"a photo of {label}", f"a photo of {shows}", shows)


def _unknown(label: str, index: int, dropped: Sequence[str]) -> Near:
    """The vocabulary knows no word of it: what the agent itself held for possible is close to it."""
    near = dropped[index % len(dropped)] if dropped else phrases.rival("cup", index, ())
    control = DROPPED if dropped else APART
    return Near(label=label, prompt=f"a photo of {label}", near=f"a photo of {near}", shows=near, control=control)


def _made(label: str, prompt: str, near: str, shows: str) -> Near:
    return Near(label=label, prompt=prompt, near=near, shows=shows, control=CLOSE)


def _rest(label: str) -> bool:
    """Whether it says more than vocabulary words."""
    said = re.findall(r"[a-z]+", label.lower())
    known = {
        part for word in find(label) for name in (word.name, *word.aliases) for part in re.findall(r"[a-z]+", name)
    }
    return any(
        not {t, t.removesuffix("s"), t.removesuffix("es")} & known
        for t in said
        if t not in ("a", "an", "the", "background", "pattern", "colour", "color")
    )


def _in(name: str, label: str) -> bool:
    return re.search(rf"\b{re.escape(name)}(?:e?s)?\b", label, re.IGNORECASE) is not None
