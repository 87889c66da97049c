"""Which pictures the experimenter asks for: factorial, so that one screening says something about every word."""

from dataclasses import dataclass

from openmaia.pictures.phrases import article, figure
from openmaia.pictures.vocabulary import Kind, of_kind

COLOURS = [word.name for word in of_kind(Kind.COLOUR)]
SHAPES = [word.name for word in of_kind(Kind.SHAPE)]
PATTERNS = [word.name for word in of_kind(Kind.PATTERN)]
OBJECTS = [word.name for word in of_kind(Kind.OBJECT)]
SCENES = [word.name for word in of_kind(Kind.SCENE)]

CROSSED = ("circle", "square", "triangle", "horizontal stripes", "vertical stripes")
"""Carriers shown in every colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A prompt and the vocabulary words that it varies."""

    prompt: str
    words: tuple[str, ...]


def screen() -> list[Shot]:
    """Every word at least twice, colours crossed with carriers, objects crossed with scenes in rotation."""
    shots = [Shot(prompt=figure(k, c), words=(c, k)) for k in CROSSED for c in COLOURS]
    others = [name for name in (*SHAPES, *PATTERNS) if name not in CROSSED]
    for index, carrier in enumerate(others):
        for step in (0, 4, 7):
            colour = COLOURS[(index + step) % len(COLOURS)]
            shots.append(Shot(prompt=figure(carrier, colour), words=(colour, carrier)))
    for index, thing in enumerate(OBJECTS):
        for step in (0, 3):
            scene = SCENES[(index + step) % len(SCENES)]
            shots.append(Shot(prompt=f"{article(thing)} on {scene}", words=(thing, scene)))
    return shots
