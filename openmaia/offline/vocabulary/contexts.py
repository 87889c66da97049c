"""Writes pairs of prompts that test whether a context, such as snow, changes a classifier's score of a class.

The second prompt of a pair shows the class in another context of the same kind. Only the part that the claim names
differs: `next to a ball` becomes `next to a tool`. Both name equally many objects.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.offline.vocabulary.phrases import article, rival
from openmaia.offline.vocabulary.words import BY_NAME, Word, WordKind, find

# Sizes and places that the collage generator understands, with their synonyms.
_PLACES = {
    "small": ("small", "tiny", "far away"),
    "large": ("large", "big", "close-up", "close up", "closeup"),
    "left": ("left",),
    "right": ("right",),
    "top": ("top",),
    "bottom": ("bottom",),
}
# Backgrounds of both prompts of a pair if the claim names none.
_GROUNDS = ("grey", "grass", "sand", "white", "stone", "blue")
_PLAIN = ("grey", "white", "brown")
# They replace the class in images without the class.
_SUBSTITUTES = ("fruit", "flower", "musical instrument", "building", "road sign", "fish")


class RuleContextWriter:
    """Writes prompts that test a claimed context, without a language model.

    It combines the vocabulary words, sizes and places that it recognises in the text of the context with the class. If
    it recognises nothing, the prompt is `a CLASS, CONTEXT`. The generator then reports words that it cannot draw.
    """

    name = "rules (no language model)"

    def write(self, name: str, context: str, n: int, run_seed: int, *, absent: bool = False) -> list[tuple[str, str]]:
        """Returns n pairs of prompts, with and without the context; with `absent` of another object than the class."""
        parts = _ContextParts.read(name, context)
        subjects = [_substitute(name, index) for index in range(n)] if absent else [name] * n
        return [
            (parts.prompt(s, index), parts.rivals(name, index).prompt(s, index)) for index, s in enumerate(subjects)
        ]


def is_exact_name(name: str) -> bool:
    """Returns whether the name of a class contains no vocabulary word merely as a synonym.

    A synonym does not distinguish the class from related ones: `bull` is one of `cow`, so that prompts with `bull` give
    images of any cow. The result is True for a name without vocabulary words.
    """
    return all(word.name in name.lower() for word in find(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContextParts:
    # A scene, a pattern or a colour.
    ground: str = ""
    # An object or shape beside the class.
    thing: str = ""
    # Of the thing.
    colour: str = ""
    # A key of _PLACES.
    place: str = ""
    # The whole text if none of its words is known.
    rest: str = ""

    @classmethod
    def read(cls, name: str, text: str) -> "_ContextParts":
        own = {word.name for word in find(name)}
        words = [word for word in find(text) if word.name not in own]
        thing = next((word.name for word in words if word.kind in (WordKind.OBJECT, WordKind.SHAPE)), "")
        colours = [word.name for word in words if word.kind is WordKind.COLOUR]
        tint = next((colour for colour in colours if _qualifies(colour, thing, words, text)), "")
        grounds = [word.name for word in words if word.kind in (WordKind.SCENE, WordKind.PATTERN)]
        ground = (*grounds, *(colour for colour in colours if colour != tint), "")[0]
        lower = text.lower()
        place = next((key for key, ways in _PLACES.items() if any(re.search(rf"\b{w}\b", lower) for w in ways)), "")
        known = bool(thing or ground or place)
        return cls(ground=ground, thing=thing, colour=tint, place=place, rest="" if known else text)

    def prompt(self, name: str, index: int) -> str:
        if self.rest:
            return f"{article(name)}, {self.rest}"
        ground = self.ground or _GROUNDS[index % len(_GROUNDS)]
        is_colour = BY_NAME[ground].kind is WordKind.COLOUR
        thing = f" next to {article(f'{self.colour} {self.thing}'.strip())}" if self.thing else ""
        return f"{_placed(name, self.place)}{thing} on {f'{article(ground)} background' if is_colour else ground}"

    def rivals(self, name: str, index: int) -> "_ContextParts":
        if self.rest:
            return _ContextParts(ground=_PLAIN[index % len(_PLAIN)])
        own = [word.name for word in find(name)]
        avoid = (*own, *filter(None, (self.thing, self.ground, self.colour)))
        places = [place for place in _PLACES if place != self.place]
        return _ContextParts(
            ground=rival(self.ground, index, avoid) if self.ground else "",
            thing=rival(self.thing, index, avoid) if self.thing else "",
            colour=rival(self.colour, index, avoid) if self.colour else "",
            place=places[index % len(places)] if self.place else "",
        )


def _qualifies(colour: str, thing: str, words: Sequence[Word], text: str) -> bool:
    # As in `a red ball`: otherwise the colour belongs to the background.
    spellings = next(((word.name, *word.aliases) for word in words if word.name == thing), ())
    return any(re.search(rf"\b{colour}\s+{re.escape(spelling)}", text.lower()) for spelling in spellings)


def _placed(name: str, place: str) -> str:
    if place in ("small", "large"):
        return f"a {place} {name}"
    return f"{article(name)} at the {place}" if place else article(name)


def _substitute(name: str, index: int) -> str:
    own = {word.name for word in find(name)} | {name}
    left = [other for other in _SUBSTITUTES if other not in own]
    return left[index % len(left)]
