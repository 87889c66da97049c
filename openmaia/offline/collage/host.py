"""Implements generator and editor by collages."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from openmaia.core.components import Component, EditorConfig, GeneratorConfig, Site
from openmaia.core.images import flatten
from openmaia.core.services import Edit, GeneratedImage, Generation, Split
from openmaia.datasets.library import ImageDataset
from openmaia.offline.collage.compose import Composer
from openmaia.offline.collage.lexicon import Lexicon
from openmaia.offline.collage.paint import PAINTS, tinted
from openmaia.offline.collage.scene import CollageScene, SceneFigure, is_vocabulary, read
from openmaia.offline.vocabulary.words import WORDS, WordKind, find

_NAME = "collage"
_SPLITS: tuple[Split, ...] = ("explore", "test")
Parts = Literal["packages", "pictures"]
_ADD = re.compile(r"(?:add|insert|put|place)\s+(?P<new>.+?)(?:\s+(?:to|into|in)\s+(?:the|it).*)?$")


# Changes of the background, but not of a figure in it, such as "change the circle in the background to a star".
_BACKGROUND = re.compile(
    r"(?:change|replace|set|make)\s+the\s+(?:(?:(?!(?:in|on|at|against|near|behind)\b)[a-z-]+\s+){1,4})?"
    r"background\s+(?:to|with|by|into)?\s*(?P<new>.+)$"
)


class CollageVocabulary:
    """The words of the offline vocabulary.

    The generator also draws other nouns in captions of its images. They do not count, because often one half of the
    images has none of them.
    """

    words = tuple(word.name for word in WORDS)

    def missing(self, phrase: str) -> tuple[str, ...]:
        """Returns the parts of a phrase that are no words, counts, sizes or places."""
        return read(phrase, 0, lambda noun: False)[1]


@dataclass
class CollageConfig(GeneratorConfig):
    """Collages of cut-outs, photographs, patterns and colours, without a model."""

    parts: Parts = "packages"
    """Where objects and textures come from. `packages`: the images that ship in Debian packages; `pictures`: the images of the
    section `pictures`, whose index.json has to list cut-outs (objects on a transparent background)."""


@dataclass
class CollageEditorConfig(EditorConfig):
    """Edits collages, and adds figures to other images."""

    parts: Parts = "packages"
    """As `generator.parts`, whose value it needs to have."""


class _Collage(Component):
    @staticmethod
    def remark(config: Any) -> str:
        return "cut-outs, photographs and shapes; no generative model"

    @classmethod
    def withheld(cls, config: Any) -> str:
        return "which are made of pictures whose licences have conditions, or are not known"

    @staticmethod
    def is_repeatable(config: Any) -> bool:
        # The user may change the images of the dataset, and composing them takes some milliseconds only.
        return config.parts == "packages"


def _parts(config: CollageConfig | CollageEditorConfig, site: Site) -> ImageDataset:
    if config.parts == "pictures":
        return site.pictures()
    from openmaia.offline.packaged.library import fetch

    return ImageDataset.open(fetch(site.cache, lambda line: None))


class CollageGenerator(_Collage):
    """Draws prompts as collages of the images of the split that a request names. `size` is their side in pixels."""

    Config: ClassVar = CollageConfig

    def __init__(self, library: ImageDataset, size: int):
        self._composers = {split: Composer(Lexicon(library, split)) for split in _SPLITS}
        self._size = size

    @classmethod
    def build(cls, config: CollageConfig, site: Site) -> Self:
        return cls(_parts(config, site), config.size)

    @staticmethod
    def vocabulary(config: CollageConfig) -> CollageVocabulary:
        return CollageVocabulary()

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        return [self._generate(request) for request in requests]

    def _generate(self, request: Generation) -> GeneratedImage:
        composer = self._composers[request.split]
        scene, unknown = read(request.prompt, request.seed, composer.lexicon.knows)
        known, missing = _drawable(scene, composer.lexicon)
        image = composer.compose(known, self._size)
        return GeneratedImage(image=image, missing_terms=(*unknown, *missing), verified_by=_NAME)


class CollageEditor(_Collage):
    """Applies an instruction to the scene of a collage, and draws the scene again.

    Images that are not collages can only be changed in two ways: by adding figures, or by tinting the whole image.
    """

    Config: ClassVar = CollageEditorConfig

    def __init__(self, library: ImageDataset):
        self._composers = {split: Composer(Lexicon(library, split)) for split in _SPLITS}

    @classmethod
    def build(cls, config: CollageEditorConfig, site: Site) -> Self:
        return cls(_parts(config, site))

    @staticmethod
    def problems(config: CollageEditorConfig, site: Site) -> Iterator[str]:
        # An edit draws the scene again: with other parts, everything in the image would change.
        drawn = getattr(site.generator, "parts", config.parts)
        if drawn != config.parts:
            yield f"generator.parts={drawn} and {site.key}.parts={config.parts}: give both the same value"

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        return [self._edit(request) for request in requests]

    def _edit(self, request: Edit) -> GeneratedImage:
        composer = self._composers[request.split]
        text = request.instruction.lower().strip().rstrip(".")
        if not request.image.recipe:
            return self._edit_foreign(request, text, composer)
        scene, unknown = _changed(CollageScene.loads(request.image.recipe), text, composer.lexicon)
        known, missing = _drawable(scene, composer.lexicon)
        size = min(request.image.pixels.shape[:2])
        return GeneratedImage(image=composer.compose(known, size), missing_terms=(*unknown, *missing))

    def _edit_foreign(self, request: Edit, text: str, composer: Composer) -> GeneratedImage:
        base, sources = request.image.pil(), list(request.image.sources)
        colour = _new_colour(text)
        if colour and "background" not in text:
            recoloured = flatten(tinted(base, PAINTS[colour]))
            return GeneratedImage(image=composer.paste(recoloured, CollageScene(figures=()), sources))
        order = _ADD.match(text)
        if not order:
            return GeneratedImage(image=request.image, missing_terms=(request.instruction,))
        added, unknown = read(order["new"], request.seed, composer.lexicon.knows)
        known, missing = _drawable(replace(added, ground=""), composer.lexicon)
        nothing = () if known.figures or unknown or missing else (order["new"],)
        return GeneratedImage(image=composer.paste(base, known, sources), missing_terms=(*unknown, *missing, *nothing))


def _changed(scene: CollageScene, text: str, lexicon: Lexicon) -> tuple[CollageScene, tuple[str, ...]]:
    def parsed(phrase: str) -> tuple[CollageScene, tuple[str, ...]]:
        return read(phrase, scene.seed, lexicon.knows)

    if order := _BACKGROUND.match(text):
        new, unknown = parsed(f"a circle on {order['new']}")
        if not new.ground:
            return scene, unknown or (order["new"],)
        return replace(scene, ground=new.ground, ground_colour=new.ground_colour), unknown
    if colour := _new_colour(text):
        named = [figure for figure in scene.figures if _is_named(figure, text)]
        if not scene.figures or (not named and _names_ground(scene, text.rpartition(" ")[0])):
            return _with_ground_in(colour, scene, text)
        named = named or scene.figures
        return replace(scene, figures=tuple(replace(f, colour=colour) if f in named else f for f in scene.figures)), ()
    if order := re.match(r"(?:replace|change|swap|turn)\s+(?P<old>.+?)\s+(?:with|by|to|into|for)\s+(?P<new>.+)$", text):
        is_named = any(_is_named(figure, order["old"]) for figure in scene.figures)
        if not is_named and _names_ground(scene, order["old"]):
            return _changed(scene, f"change the background to {order['new']}", lexicon)
        if not is_named and any(word.kind is not WordKind.COLOUR for word in find(order["old"])):
            return scene, (order["old"],)
        new, unknown = parsed(order["new"])
        if new.figures:
            return replace(scene, figures=_replaced(scene.figures, order["old"], new.figures)), unknown
        return scene, unknown or (order["new"],)
    if order := re.match(r"(?:remove|delete|erase)\s+(?P<old>.+)$", text):
        left = tuple(figure for figure in scene.figures if not _is_named(figure, order["old"]))
        return (replace(scene, figures=left), ()) if left != scene.figures else (scene, (order["old"],))
    if order := re.match(r"(?:add|insert|put|place)\s+(?P<new>.+?)(?:\s+(?:to|into|in)\s+the\s+\w+)?$", text):
        new, unknown = parsed(order["new"])
        return replace(scene, figures=scene.figures + new.figures), unknown or (() if new.figures else (order["new"],))
    return scene, (text,)


def _with_ground_in(colour: str, scene: CollageScene, text: str) -> tuple[CollageScene, tuple[str, ...]]:
    if is_vocabulary(scene.ground, WordKind.COLOUR):
        return replace(scene, ground=colour), ()
    if is_vocabulary(scene.ground, WordKind.PATTERN):
        return replace(scene, ground_colour=colour), ()
    return scene, (text,)


def _replaced(figures: tuple[SceneFigure, ...], old: str, new: tuple[SceneFigure, ...]) -> tuple[SceneFigure, ...]:
    # Without a figure of that name, the first one is replaced. The new figure takes over size and place.
    if not figures:
        return new
    index = next((i for i, figure in enumerate(figures) if _is_named(figure, old)), 0)
    swapped = replace(new[0], size=figures[index].size, place=figures[index].place)
    return (*figures[:index], swapped, *new[1:], *figures[index + 1 :])


def _names_ground(scene: CollageScene, phrase: str) -> bool:
    return "background" in phrase or scene.ground in {word.name for word in find(phrase)}


def _is_named(figure: SceneFigure, phrase: str) -> bool:
    words = {word.name for word in find(phrase)}
    return figure.what in words or (bool(figure.what) and re.search(rf"\b{re.escape(figure.what)}", phrase) is not None)


def _new_colour(text: str) -> str:
    order = re.match(
        r"(?:make (?:it|the .+?|everything)|change the colou?r(?: of .+?)? to|colou?r (?:it|the .+?))\s+(?P<c>[a-z -]+)$",
        text,
    )
    colours = [word.name for word in find(order["c"]) if word.kind is WordKind.COLOUR] if order else []
    return colours[0] if colours else ""


def _drawable(scene: CollageScene, lexicon: Lexicon) -> tuple[CollageScene, list[str]]:
    # The split may have no image of a noun.
    drawn = (WordKind.SHAPE, WordKind.SCENE)
    nouns = [figure.what for figure in scene.figures if figure.what]
    missing = [noun for noun in nouns if not any(word.kind in drawn for word in find(noun)) and not lexicon.knows(noun)]
    return replace(scene, figures=tuple(figure for figure in scene.figures if figure.what not in missing)), missing
