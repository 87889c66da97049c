"""Which pictures the experimenter asks for first: factorial, so that one screening says something about every word."""

import re
from dataclasses import dataclass

from openmaia.pictures.phrases import article, figure
from openmaia.pictures.vocabulary import Kind, of_kind

COLOURS = [word.name for word in of_kind(Kind.COLOUR)]
CARRIERS = [word.name for word in of_kind(Kind.SHAPE, Kind.PATTERN)]
OBJECTS = [word.name for word in of_kind(Kind.OBJECT)]
SCENES = [word.name for word in of_kind(Kind.SCENE)]

PLAIN = 2
"""Pictures of nothing but a colour: figures have a ground, and patterns paper, of colours that nobody asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A prompt and the vocabulary words that it varies."""

    prompt: str
    words: tuple[str, ...]

    @property
    def ground(self) -> str:
        """The colour of the ground, "" where it is none."""
        found = re.search(r" on a (\w+) background$", self.prompt)
        return found[1] if found else ""


def screen() -> list[Shot]:
    """Every colour alone and crossed with every shape and pattern; every object on plain ground and on a scene, the
    scenes in rotation."""
    shots = [Shot(prompt=f"a plain {colour} picture", words=(colour,)) for colour in COLOURS for _ in range(PLAIN)]
    # Grounds in a Latin square: none of them goes with a colour or a carrier.
    shots += [
        Shot(prompt=figure(k, c, (), row + column), words=(c, k))
        for row, k in enumerate(CARRIERS)
        for column, c in enumerate(COLOURS)
    ]
    for index, thing in enumerate(OBJECTS):
        scene = SCENES[index % len(SCENES)]
        shots.append(Shot(prompt=f"{article(thing)} on a grey background", words=(thing,)))
        shots.append(Shot(prompt=f"{article(thing)} on {scene}", words=(thing, scene)))
    return shots
