"""The concepts that activate closed-form units, each with its detector.

For each of them, at least one packaged image of the explore split gives evidence of 0.5. Scenes are not among them,
because no detector in this package distinguishes sand from snow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from openmaia.offline.closed_form import objects, textures
from openmaia.offline.closed_form.colours import ConceptDetector, at_side, hue, neutral
from openmaia.offline.closed_form.shapes import SHAPE_NAMES, count, shape


class Sort(StrEnum):
    """What kind of thing a concept is."""

    COLOUR = "colour"
    TEXTURE = "texture"
    SHAPE = "shape"
    THING = "thing"
    POSITION = "position"
    COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """A concept with the formula that detects it."""

    name: str
    sort: Sort
    detector: ConceptDetector


_COLOURS: Mapping[str, ConceptDetector] = {
    "red": hue(0, 14),
    "orange": hue(29, 12, value=(0.65, 1)),
    "yellow": hue(53, 11),
    "green": hue(120, 40, (0.35, 1)),
    "blue": hue(223, 25),
    "purple": hue(281, 25, (0.35, 1)),
    "pink": hue(335, 20, (0.25, 0.65), (0.7, 1)),
    "brown": hue(27, 13, (0.35, 1), (0.15, 0.6)),
    "black": neutral(0, 0.16),
    "white": neutral(0.88, 1),
    "grey": neutral(0.3, 0.75),
    "turquoise": hue(180, 13, (0.3, 1)),
    "maroon": hue(354, 12, (0.5, 1), (0.2, 0.5)),
    "navy": hue(225, 20, (0.45, 1), (0.15, 0.45)),
}
_OUTSIDE_COLOURS = ("turquoise", "maroon", "navy")

_TEXTURES: Mapping[str, ConceptDetector] = {
    "horizontal stripes": textures.stripes("horizontal"),
    "vertical stripes": textures.stripes("vertical"),
    "diagonal stripes": textures.stripes("diagonal"),
    "checkerboard": textures.checkerboard,
    "dots": textures.dots,
    "grid": textures.grid,
    "rings": textures.rings,
    "noise": textures.noise,
}

_ON_SIDES = {
    "white": ("top", "bottom"),
    "black": ("top", "bottom", "left", "right"),
    "blue": ("top",),
    "brown": ("bottom",),
    "grey": ("bottom",),
}


def _inside() -> Iterator[Concept]:
    yield from (
        *(_concept(name, Sort.COLOUR, _COLOURS[name]) for name in _COLOURS if name not in _OUTSIDE_COLOURS),
        *(_concept(name, Sort.TEXTURE, detector) for name, detector in _TEXTURES.items()),
        *(_concept(name, Sort.SHAPE, shape(name)) for name in (*SHAPE_NAMES, "bar")),
        *(_concept(name, Sort.THING, objects.thing(classes)) for name, classes in objects.INSIDE_CLASSES.items()),
    )


def _outside() -> Iterator[Concept]:
    yield from (
        *(_concept(name, Sort.COLOUR, _COLOURS[name]) for name in _OUTSIDE_COLOURS),
        *(
            _concept(f"{colour} only at the {side}", Sort.POSITION, at_side(_COLOURS[colour], side))
            for colour, sides in _ON_SIDES.items()
            for side in sides
        ),
        _concept("two separate figures", Sort.COUNT, count(2, 2)),
        _concept("three or four separate figures", Sort.COUNT, count(3, 4)),
        *(_concept(name, Sort.THING, objects.thing(classes)) for name, classes in objects.OUTSIDE_CLASSES.items()),
    )


def _concept(name: str, sort: Sort, detector: ConceptDetector) -> Concept:
    return Concept(name=name, sort=sort, detector=detector)


INSIDE: Mapping[str, Concept] = {each.name: each for each in _inside()}
"""Concepts for which the offline vocabulary has a word, by name."""
OUTSIDE: Mapping[str, Concept] = {each.name: each for each in _outside()}
"""Those for which it has neither a word nor a more general word, so that the right answer is to abstain."""

WIDER: Mapping[str, tuple[str, ...]] = {"rings": ("circle",)}
"""General concepts with their special cases. No unit combines the two."""
