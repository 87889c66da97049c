"""The contexts in which test prompts show vocabulary words.

They differ from those in which the scripted experimenter shows words when it investigates a unit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from openmaia.offline.vocabulary.phrases import article
from openmaia.offline.vocabulary.words import BY_NAME, WordKind, of_kind

_LAYOUTS = (
    *product(("", "small"), ("", "at the left", "at the right", "at the top", "at the bottom")),
    ("large", ""),
)
"""Size and place of the first figure. Large figures are only in the centre, because elsewhere they would be cropped."""

_COLOURS_OF_SCENES = {
    "grass": ("green",),
    "sand": ("yellow", "orange", "brown"),
    "water": ("blue",),
    "sky": ("blue", "white"),
    "snow": ("white",),
    "wood": ("brown", "orange"),
    "stone": ("grey",),
    "brick": ("red", "orange", "brown"),
}
"""Prompts that test or avoid one of these colours do not use the scene."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContext:
    """The parts of a test prompt around the words that are tested.

    A part is empty if one of the tested words takes its place, or if the prompt does not mention it.
    """

    size: str = ""
    place: str = ""
    ground: str = ""
    """A colour or a scene."""
    ink: str = ""
    """Of a shape or a pattern."""
    figure: str = ""
    """In front of a pattern or a scene, or the shape that has a colour."""

    def prompt(self, names: Sequence[str]) -> str:
        colours, patterns, shapes, objects, scenes = (_of_kind(names, kind) for kind in WordKind)
        tint = colours[0] if colours else self.ink
        figures = [*objects, *shapes] or [self.figure]
        pattern = f"{tint} {patterns[0]}" if patterns else ""
        if not figures[0]:
            return pattern or scenes[0]
        first = " ".join(filter(None, (self.size, "" if patterns else tint, figures[0])))
        placed = " ".join(filter(None, (article(first), self.place)))
        shown = " next to ".join((placed, *map(article, figures[1:])))
        return f"{shown} on {scenes[0] if scenes else pattern or _background(self.ground)}"


def contexts(names: Sequence[str], avoid: Sequence[str]) -> list[PromptContext]:
    """Returns all contexts in which a prompt can show these vocabulary words together, without the words in `avoid`.

    A context remains usable if the words are replaced by others of the same kinds.
    """
    return [context for context in _combinations(names, avoid) if context.ink != context.ground or not context.ink]


def _combinations(names: Sequence[str], avoid: Sequence[str]) -> Iterator[PromptContext]:
    colours, patterns, shapes, objects, scenes = (_of_kind(names, kind) for kind in WordKind)
    hues, carriers = (_names(kind, (*avoid, *names)) for kind in (WordKind.COLOUR, WordKind.SHAPE))
    inks = hues if (shapes or patterns) and not (colours or objects) else [""]
    coloured = [scene for scene, shown in _COLOURS_OF_SCENES.items() if {*shown} & {*avoid, *names}]
    grounds = [""] if patterns or scenes else [*hues, *_names(WordKind.SCENE, (*avoid, *coloured))]
    figures = [""]
    if not (shapes or objects):
        figures = [*carriers, *(_names(WordKind.OBJECT, (*avoid, *names)) if scenes else ())]
    # A pattern is the background, which a larger figure would cover.
    layouts = [layout for layout in _LAYOUTS if layout[0] == "small"] if patterns else _LAYOUTS
    for figure, ink, ground, (size, place) in product(figures, inks, grounds, layouts):
        yield PromptContext(size=size, place=place, ground=ground, ink=ink, figure=figure)
    if patterns and not (shapes or objects):
        yield from (PromptContext(ink=ink) for ink in inks)


def _names(kind: WordKind, avoid: Sequence[str]) -> list[str]:
    # All of them if none is left.
    names = [word.name for word in of_kind(kind)]
    return [name for name in names if name not in avoid] or names


def _of_kind(names: Sequence[str], kind: WordKind) -> list[str]:
    return [name for name in names if BY_NAME[name].kind is kind]


def _background(ground: str) -> str:
    return f"{article(ground)} background" if BY_NAME[ground].kind is WordKind.COLOUR else ground
