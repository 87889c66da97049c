"""Draws scenes as collages.

The layout, the choice of the images of the figures, and the background use separate random streams of the seed.
Therefore two scenes with the same seed that differ in a noun agree in size, place and background, and are a matched
pair for an evaluation.
"""

from functools import lru_cache

import numpy as np
from PIL import Image

from openmaia.core.images import EncodedImage, flatten
from openmaia.datasets.library import DatasetImage
from openmaia.offline.collage import paint
from openmaia.offline.collage.lexicon import Lexicon
from openmaia.offline.collage.scene import CollageScene, SceneFigure, is_vocabulary
from openmaia.offline.vocabulary.words import WordKind, of_kind

# Colours of backgrounds for prompts that name none.
_PLAIN = ("grey", "white", "brown", "green", "blue")

_LAYOUT, _PARTS, _GROUND = range(3)


def _stream(scene: CollageScene, *name: int) -> np.random.Generator:
    return np.random.default_rng([scene.seed, *name])


class Composer:
    """Draws scenes with the images of one split."""

    def __init__(self, lexicon: Lexicon):
        self.lexicon = lexicon
        self._load = lru_cache(maxsize=256)(_load)
        self._cut = lru_cache(maxsize=64)(_cut)

    def compose(self, scene: CollageScene, size: int) -> EncodedImage:
        """Draws a scene as a square with sides of `size` pixels, and stores the recipe and the sources with it."""
        sources: list[str] = []
        canvas = self._ground(scene, size, _stream(scene, _GROUND), sources)
        self._place(canvas, scene, sources)
        return EncodedImage.of(np.asarray(canvas), sources, recipe=scene.dumps())

    def paste(self, base: Image.Image, scene: CollageScene, sources: list[str]) -> EncodedImage:
        """Draws the figures of a scene on a copy of `base`, and adds their images' digests to `sources`."""
        canvas = base.copy()
        self._place(canvas, scene, sources)
        return EncodedImage.of(np.asarray(canvas), sources)

    def _place(self, canvas: Image.Image, scene: CollageScene, sources: list[str]) -> None:
        # Each figure has its own random stream, so that replacing one does not change the others.
        size = min(canvas.size)
        left, top = (canvas.width - size) / 2, (canvas.height - size) / 2
        for index, (figure, (x, y, side)) in enumerate(zip(scene.figures, layout(scene, size), strict=True)):
            stamp = self._stamp(figure, side, _stream(scene, _PARTS, index), sources)
            canvas.paste(stamp, (round(left + x - stamp.width / 2), round(top + y - stamp.height / 2)), stamp)

    def _ground(self, scene: CollageScene, size: int, rng: paint.Rng, sources: list[str]) -> Image.Image:
        name = scene.ground
        if name in paint.PAINTS:
            return paint.plain(paint.PAINTS[name], size, rng)
        if is_vocabulary(name, WordKind.PATTERN):
            ink, paper = _inks(scene.ground_colour, rng)
            return paint.pattern(name, ink, paper, size, rng)
        if name in paint.GROUNDS:
            return _in_colour(scene.ground_colour, self._scenery(name, size, rng, sources))
        photo = self._photo(scene, rng)
        if photo is not None:
            sources.append(photo.digest)
            return _crop(self._load(photo), size, rng)
        return paint.plain(paint.PAINTS[_PLAIN[rng.integers(len(_PLAIN))]], size, rng)

    def _scenery(self, name: str, size: int, rng: paint.Rng, sources: list[str]) -> Image.Image:
        textures = self.lexicon.textures(name)
        if textures and rng.random() < 0.5:
            item = textures[rng.integers(len(textures))]
            sources.append(item.digest)
            tile = flatten(self._load(item))
            canvas = Image.new("RGB", (size, size))
            for x in range(0, size, tile.width):
                for y in range(0, size, tile.height):
                    canvas.paste(tile, (x, y))
            return canvas
        return paint.ground(name, size, rng)

    def _photo(self, scene: CollageScene, rng: paint.Rng) -> DatasetImage | None:
        # Only a scene with a single figure that has no colour, and for which there is no cut-out, is shown by a
        # photograph as a whole.
        if len(scene.figures) != 1 or scene.figures[0].colour or self.lexicon.cutouts(scene.figures[0].what):
            return None
        photos = self.lexicon.photos(scene.figures[0].what)
        return photos[rng.integers(len(photos))] if photos else None

    def _stamp(self, figure: SceneFigure, side: int, rng: paint.Rng, sources: list[str]) -> Image.Image:
        colour = paint.PAINTS.get(figure.colour)
        shape = figure.what if is_vocabulary(figure.what, WordKind.SHAPE) else ""
        if not figure.what:
            shapes = of_kind(WordKind.SHAPE)
            shape = shapes[rng.integers(len(shapes))].name
        if shape or is_vocabulary(figure.what, WordKind.SCENE):
            return paint.shape(shape or "square", self._fill(figure, side, rng), side, rng)
        items = self.lexicon.cutouts(figure.what)
        photos = [] if items else self.lexicon.photos(figure.what)
        item = (items or photos)[rng.integers(len(items or photos))]
        if photos and len(sources) == 1 and sources[0] in {photo.digest for photo in photos}:
            return Image.new("RGBA", (1, 1))  # the photograph is already the background
        sources.append(item.digest)
        is_photographed = bool(items) and item.kind == "photo"
        image = self._cut(item, figure.what == "ball") if is_photographed else self._load(item)
        stamp = image.crop(image.getbbox()) if image.mode == "RGBA" else _crop(image, side, rng).convert("RGBA")
        scale = side / max(stamp.size)
        stamp = stamp.resize((max(round(stamp.width * scale), 1), max(round(stamp.height * scale), 1)))
        return paint.tinted(stamp, colour) if colour else stamp.convert("RGBA")

    def _fill(self, figure: SceneFigure, side: int, rng: paint.Rng) -> Image.Image:
        if is_vocabulary(figure.what, WordKind.SCENE):
            return _in_colour(figure.colour, paint.ground(figure.what, side, rng))
        ink, paper = _inks(figure.colour, rng)
        if figure.pattern:
            return paint.pattern(figure.pattern, ink, paper, max(side, 64), rng)
        return paint.plain(ink, side, rng)


def layout(scene: CollageScene, size: int) -> list[tuple[float, float, int]]:
    """Returns x and y of its centre and the length of its longer side, in pixels, for each figure."""
    rng, count = _stream(scene, _LAYOUT), len(scene.figures)
    usual = (0.0, 0.66, 0.48, 0.40)[min(count, 3)] if count < 4 else 0.32
    columns = 1 if count == 1 else 2 if count < 5 else 3
    rows = -(-count // columns)
    places: list[tuple[float, float, int]] = []
    for index, figure in enumerate(scene.figures):
        jitter = rng.uniform(-0.04, 0.04, 2)
        side = (figure.size or usual) * rng.uniform(0.92, 1.08)
        x = (index % columns + 0.5) / columns + figure.place[0] + jitter[0]
        y = (index // columns + 0.5) / rows + figure.place[1] + jitter[1]
        places.append((x * size, y * size, max(round(side * size), 8)))
    return places


def _in_colour(colour: str, scenery: Image.Image) -> Image.Image:
    return flatten(paint.tinted(scenery, paint.PAINTS[colour])) if colour else scenery


def _inks(colour: str, rng: paint.Rng) -> tuple[paint.Colour, paint.Colour]:
    # The background needs to differ enough from the foreground in brightness.
    names = sorted(paint.PAINTS)
    ink = paint.PAINTS[colour or names[rng.integers(len(names))]]
    papers = [paint.PAINTS[name] for name in ("white", "black", "grey")]
    apart = [paper for paper in papers if abs(sum(paper) - sum(ink)) > 180]
    return ink, apart[int(rng.random() * len(apart))]


def _crop(image: Image.Image, size: int, rng: paint.Rng) -> Image.Image:
    # At least 80 % of the shorter side.
    side = min(image.size) * rng.uniform(0.8, 1.0)
    x, y = rng.uniform(0, image.width - side), rng.uniform(0, image.height - side)
    return flatten(image).resize((size, size), Image.Resampling.BICUBIC, box=(x, y, x + side, y + side))


def _cut(item: DatasetImage, is_round: bool) -> Image.Image:
    image = item.load()
    image.thumbnail((256, 256))
    return paint.without_ground(image, is_round=is_round)


def _load(item: DatasetImage) -> Image.Image:
    image = item.load()
    image.thumbnail((512, 512))
    return image
