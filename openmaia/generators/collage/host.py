"""The collage as Generator and Editor."""

import re
from collections.abc import Sequence
from dataclasses import replace

from openmaia.generators.collage.compose import Composer
from openmaia.generators.collage.lexicon import Lexicon
from openmaia.generators.collage.paint import COLOURS, tinted
from openmaia.generators.collage.scene import Figure, Scene, read
from openmaia.images import flatten
from openmaia.pictures.library import Library
from openmaia.pictures.vocabulary import Kind, find
from openmaia.services import Drawn, Edit, Generation, Half

NAME = "collage"


class _Halves:
    def __init__(self, library: Library, size: int):
        halves: tuple[Half, ...] = ("explore", "test")
        self.lexicon = {half: Lexicon(library, half) for half in halves}
        self.composer = {half: Composer(self.lexicon[half], size) for half in halves}


class CollageGenerator:
    def __init__(self, library: Library, size: int):
        self._halves = _Halves(library, size)

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        return [self._generate(request) for request in requests]

    def _generate(self, request: Generation) -> Drawn:
        scene, unknown = read(request.prompt, request.seed, self._halves.lexicon[request.half].knows)
        known, undrawn = _drawable(scene, self._halves.lexicon[request.half])
        picture = self._halves.composer[request.half].compose(known)
        return Drawn(picture=picture, undrawn=(*unknown, *undrawn), vouched=NAME)


class CollageEditor:
    """Edits what the collage made by its recipe; on any other picture it can only add figures and change colours."""

    def __init__(self, library: Library, size: int):
        self._halves = _Halves(library, size)

    def edit(self, requests: Sequence[Edit]) -> list[Drawn]:
        return [self._edit(request) for request in requests]

    def _edit(self, request: Edit) -> Drawn:
        lexicon, composer = self._halves.lexicon[request.half], self._halves.composer[request.half]
        text = request.instruction.lower().strip().rstrip(".")
        if request.picture.recipe:
            scene = Scene.loads(request.picture.recipe)
            changed, unknown = _changed(scene, text, lexicon)
            known, undrawn = _drawable(changed, lexicon)
            return Drawn(picture=composer.compose(known), undrawn=(*unknown, *undrawn))
        base = request.picture.pil()
        colour = _colour_order(text)
        if colour and "background" not in text:
            recoloured = flatten(tinted(base, COLOURS[colour]))
            return Drawn(picture=composer.paste(recoloured, Scene(figures=()), list(request.picture.sources)))
        order = re.match(r"(?:add|insert|put|place)\s+(?P<new>.+?)(?:\s+(?:to|into|in)\s+(?:the|it).*)?$", text)
        if not order:
            return Drawn(picture=request.picture, undrawn=(request.instruction,))
        added, unknown = read(order["new"], request.seed, lexicon.knows)
        known, undrawn = _drawable(replace(added, ground=""), lexicon)
        return Drawn(picture=composer.paste(base, known, list(request.picture.sources)), undrawn=(*unknown, *undrawn))


def _changed(scene: Scene, text: str, lexicon: Lexicon) -> tuple[Scene, tuple[str, ...]]:
    """An instruction applied to a scene, and what of it was not understood or cannot be drawn."""

    def said(phrase: str) -> tuple[Scene, tuple[str, ...]]:
        return read(phrase, scene.seed, lexicon.knows)

    if order := re.match(r"(?:change|replace|set|make)\s+the\s+background\s+(?:to|with|by|into)?\s*(?P<new>.+)$", text):
        new, unknown = said(f"a circle on {order['new']}")
        if not new.ground:
            return scene, unknown or (order["new"],)
        return replace(scene, ground=new.ground, ground_colour=new.ground_colour), unknown
    if colour := _colour_order(text):
        named = [figure for figure in scene.figures if _is_named(figure, text)] or scene.figures
        figures = tuple(replace(f, colour=colour) if f in named else f for f in scene.figures)
        return replace(scene, figures=figures, ground_colour=colour if not figures else scene.ground_colour), ()
    if order := re.match(r"(?:replace|change|swap|turn)\s+(?P<old>.+?)\s+(?:with|by|to|into|for)\s+(?P<new>.+)$", text):
        new, unknown = said(order["new"])
        if new.figures:
            return replace(scene, figures=_replaced(scene.figures, order["old"], new.figures)), unknown
        return scene, unknown or (order["new"],)
    if order := re.match(r"(?:remove|delete|erase)\s+(?P<old>.+)$", text):
        left = tuple(figure for figure in scene.figures if not _is_named(figure, order["old"]))
        return (replace(scene, figures=left), ()) if left != scene.figures else (scene, (order["old"],))
    if order := re.match(r"(?:add|insert|put|place)\s+(?P<new>.+?)(?:\s+(?:to|into|in)\s+the\s+\w+)?$", text):
        new, unknown = said(order["new"])
        return replace(scene, figures=scene.figures + new.figures), unknown or (() if new.figures else (order["new"],))
    return scene, (text,)


def _replaced(figures: tuple[Figure, ...], old: str, new: tuple[Figure, ...]) -> tuple[Figure, ...]:
    """The figure named, or the only or first one where the name fits none; size and place stay. Of several new ones
    the first takes the place."""
    index = next((i for i, figure in enumerate(figures) if _is_named(figure, old)), 0)
    if not figures:
        return new
    swapped = replace(new[0], size=figures[index].size, place=figures[index].place)
    return (*figures[:index], swapped, *new[1:], *figures[index + 1 :])


def _is_named(figure: Figure, phrase: str) -> bool:
    words = {word.name for word in find(phrase)}
    return figure.what in words or (bool(figure.what) and re.search(rf"\b{re.escape(figure.what)}", phrase) is not None)


def _colour_order(text: str) -> str:
    order = re.match(
        r"(?:make (?:it|the .+?|everything)|change the colou?r(?: of .+?)? to|colou?r (?:it|the .+?))\s+(?P<c>[a-z -]+)$",
        text,
    )
    colours = [word.name for word in find(order["c"]) if word.kind is Kind.COLOUR] if order else []
    return colours[0] if colours else ""


def _drawable(scene: Scene, lexicon: Lexicon) -> tuple[Scene, list[str]]:
    """The scene without nouns that this half has no picture of, and these nouns."""
    shapes = (Kind.SHAPE, Kind.SCENE)
    undrawn = [
        figure.what
        for figure in scene.figures
        if figure.what and not any(w.kind in shapes for w in find(figure.what)) and not lexicon.knows(figure.what)
    ]
    return replace(scene, figures=tuple(f for f in scene.figures if f.what not in undrawn)), undrawn
