"""The concepts that activate closed-form units, each with its detector.

INSIDE holds concepts for which the vocabulary of the scripted experimenter has a word. OUTSIDE holds concepts for which
it has neither a word nor a more general word, so that the right answer is to abstain. For each concept, at least one
packaged image of the explore split, the half that agents see, gives evidence of 0.5. Scenes are not among the concepts,
because no detector in this package distinguishes sand from snow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from openmaia.offline.closed_form import objects, textures
from openmaia.offline.closed_form.colours import ConceptDetector, at_side, hue, neutral
from openmaia.offline.closed_form.shapes import NAMES, count, shape


class Sort(StrEnum):
    """The category of a concept."""

    COLOUR = "colour"
    TEXTURE = "texture"
    SHAPE = "shape"
    THING = "thing"
    POSITION = "position"
    COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """A property of images that a detector measures."""

    name: str
    sort: Sort
    detector: ConceptDetector


COLOURS: Mapping[str, ConceptDetector] = {
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
}

TEXTURES: Mapping[str, ConceptDetector] = {
    "horizontal stripes": textures.stripes("horizontal"),
    "vertical stripes": textures.stripes("vertical"),
    "diagonal stripes": textures.stripes("diagonal"),
    "checkerboard": textures.checkerboard,
    "dots": textures.dots,
    "grid": textures.grid,
    "rings": textures.rings,
    "noise": textures.noise,
}

INSIDE: Mapping[str, Concept] = {
    concept.name: concept
    for concept in (
        *(Concept(name=name, sort=Sort.COLOUR, detector=detector) for name, detector in COLOURS.items()),
        *(Concept(name=name, sort=Sort.TEXTURE, detector=detector) for name, detector in TEXTURES.items()),
        *(Concept(name=name, sort=Sort.SHAPE, detector=shape(name)) for name in (*NAMES, "bar")),
        *(
            Concept(name=name, sort=Sort.THING, detector=objects.thing(classes))
            for name, classes in objects.INSIDE.items()
        ),
    )
}

_ON_SIDES = {
    "white": ("top", "bottom"),
    "black": ("top", "bottom", "left", "right"),
    "blue": ("top",),
    "brown": ("bottom",),
    "grey": ("bottom",),
}

OUTSIDE: Mapping[str, Concept] = {
    concept.name: concept
    for concept in (
        Concept(name="turquoise", sort=Sort.COLOUR, detector=hue(180, 13, (0.3, 1))),
        Concept(name="maroon", sort=Sort.COLOUR, detector=hue(354, 12, (0.5, 1), (0.2, 0.5))),
        Concept(name="navy", sort=Sort.COLOUR, detector=hue(225, 20, (0.45, 1), (0.15, 0.45))),
        *(
            Concept(name=f"{colour} only at the {side}", sort=Sort.POSITION, detector=at_side(COLOURS[colour], side))
            for colour, sides in _ON_SIDES.items()
            for side in sides
        ),
        Concept(name="two separate figures", sort=Sort.COUNT, detector=count(2, 2)),
        Concept(name="three or four separate figures", sort=Sort.COUNT, detector=count(3, 4)),
        *(
            Concept(name=name, sort=Sort.THING, detector=objects.thing(classes))
            for name, classes in objects.OUTSIDE.items()
        ),
    )
}

WIDER: Mapping[str, tuple[str, ...]] = {"rings": ("circle",)}
"""The special cases of general concepts. No unit combines a general concept with its special case."""
