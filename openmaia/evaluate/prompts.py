"""The rule-based prompt writer: for each label a picture of it, and one that differs in nothing but the label's words.

It is no language model. It knows the vocabulary's words and their kinds; of any other label it makes "a photo of …".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.pictures import phrases
from openmaia.pictures.vocabulary import BY_NAME, Kind, Word, find, of_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """positive and neutral are drawn from one seed, so that layout, size and ground are the same."""

    label: str
    positive: str
    neutral: str


def write(labels: Sequence[str], n: int) -> list[Pair]:
    """n pairs, the labels taking turns."""
    words = [find(label) for label in labels]
    avoid = [word.name for found in words for word in found]
    return [_pair(labels[i % len(labels)], words[i % len(labels)], i // len(labels), avoid) for i in range(n)]


def _pair(label: str, words: Sequence[Word], index: int, avoid: Sequence[str]) -> Pair:
    colour = next((w.name for w in words if w.kind is Kind.COLOUR), "")
    carrier = next((w.name for w in words if w.kind in (Kind.SHAPE, Kind.PATTERN)), "")
    things = [w.name for w in words if w.kind in (Kind.OBJECT, Kind.SCENE)]
    if colour and carrier:
        # A picture that has one half of the combination is no neutral picture of it, but the hardest one; both change.
        positive = phrases.figure(carrier, colour, avoid)
        neutral = phrases.figure(phrases.rival(carrier, index, avoid), phrases.rival(colour, index, avoid), avoid)
    elif len(things) > 1:
        others = [phrases.rival(thing, index + at, avoid) for at, thing in enumerate(things)]
        positive, neutral = (_together(names) for names in (things, others))
    elif words:
        word = (things or [words[0].name])[0]
        other = phrases.rival(word, index, avoid)
        # Both are kept out of both, or a word would change the ground along with the figure.
        positive, neutral = (phrases.single(one, index, (*avoid, word, other)) for one in (word, other))
    else:
        positive = f"a photo of {label}"
        neutral = phrases.single(phrases.rival("cup", index, avoid), index, avoid)
    return Pair(label=label, positive=positive, neutral=neutral)


def _together(names: Sequence[str]) -> str:
    """Things side by side, on the scene where there is one."""
    grounds = [name for name in names if BY_NAME[name].kind is Kind.SCENE]
    figures = [name for name in names if name not in grounds] or grounds
    prompt = " next to ".join(map(phrases.article, figures))
    return f"{prompt} on {grounds[0]}" if grounds and figures != grounds else prompt


def unrelated(n: int) -> list[str]:
    """Prompts over the whole vocabulary, of every kind in turn, that were written for no description: different ones as far
    as there are."""
    kinds = [of_kind(kind) for kind in (Kind.OBJECT, Kind.COLOUR, Kind.OBJECT, Kind.SHAPE, Kind.SCENE, Kind.PATTERN)]
    found: dict[str, None] = {}
    for at in range(20 * n):
        words, turn = kinds[at % len(kinds)], at // len(kinds)
        # Seven has no divisor in common with most numbers of words, so that nearly all of them have their turn soon.
        found.setdefault(phrases.single(words[(7 * turn + at) % len(words)].name, turn))
        if len(found) == n:
            break
    return list(found)
