"""Describes a scene in words that the grammar reads back."""

from collections.abc import Iterator
from itertools import groupby

from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.render import GREY_STYLES
from openmaia.offline.scenes.words import plural
from openmaia.offline.vocabulary.phrases import article

_NUMBERS = ("", "", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "10 ", "11 ", "12 ")
_PATTERNS = {
    "vertical stripes": "vertically striped",
    "horizontal stripes": "horizontally striped",
    "diagonal stripes": "diagonally striped",
    "dots": "dotted",
    "checks": "checked",
    "rings": "ringed",
    "bricks": "brick",
    "grid": "gridded",
    "waves": "wavy",
}
PLACE_PHRASES = {
    "sea": "on the sea",
    "beach": "on the beach",
    "meadow": "in a meadow",
    "forest": "in a forest",
    "mountains": "in the mountains",
    "desert": "in the desert",
    "snow": "in the snow",
    "street": "in a street",
    "room": "in a room",
    "underwater": "under water",
    "sky": "in the sky",
    "space": "in outer space",
}
TIME_PHRASES = {"morning": " in the morning", "dusk": " at dusk", "night": " at night"}
_WEATHERS = {
    "cloudy": ", cloudy",
    "rain": " in the rain",
    "storm": " in a storm",
    "snowfall": " in falling snow",
    "fog": " in the fog",
}


def describe(scene: Scene) -> str:
    """Returns a caption such as "two red boats and a white bird on the sea at dusk"."""
    is_grey = scene.style in GREY_STYLES
    phrases: list[str] = []
    for look, alike in groupby(scene.figures, lambda f: (f.kind, f.paint, f.size, f.relation)):
        figures = list(alike)
        # A figure that stands somewhere is described with the one that it refers to.
        link = f" {look[3]} " if look[3] else ""
        phrases.append(_phrase(figures[0], len(figures), is_grey) + link)
    what = _joined(phrases)
    ground = article(" ".join([*_words(scene.ground, is_grey), "background"]))
    where = PLACE_PHRASES.get(scene.place) or f"on {ground}"
    style = "" if scene.style in ("", "flat") else f", {scene.style}"
    return f"{what} {where}{TIME_PHRASES.get(scene.time, '')}{_WEATHERS.get(scene.weather, '')}{style}"


def _phrase(figure: Figure, count: int, is_grey: bool) -> str:
    size, name = [figure.size] if figure.size else [], figure.kind if count == 1 else plural(figure.kind)
    text = " ".join([*size, *_words(figure.paint, is_grey), name])
    return article(text) if count == 1 else _NUMBERS[count] + text


def _words(paint: Paint, is_grey: bool) -> Iterator[str]:
    colours = [each for each in (paint.colour, paint.second) if each and not is_grey]
    yield from [" and ".join(colours)] if colours else []
    yield from [_PATTERNS.get(paint.pattern, paint.pattern)] if paint.pattern else []


def _joined(phrases: list[str]) -> str:
    text = ""
    for number, phrase in enumerate(phrases):
        is_linked = text.endswith(" ")
        text += phrase if is_linked or not text else f"{' and ' if number == len(phrases) - 1 else ', '}{phrase}"
    return text.strip()
