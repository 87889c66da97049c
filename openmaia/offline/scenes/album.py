"""Random scenes as pictures of a dataset."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from PIL import Image

from openmaia.core.images import EncodedImage, decode
from openmaia.datasets.library import DatasetImage, keep
from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.captions import describe
from openmaia.offline.scenes.grammar import drawable
from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import PLACES, TIMELESS, complete, settle
from openmaia.offline.scenes.render import render
from openmaia.offline.scenes.words import PATTERNS

STYLES = ("outlined", "pencil drawing", "night vision", "greyscale", "pixelated", "blurred")
WEATHERS = ("cloudy", "rain", "storm", "snowfall", "fog")
_TIMES = ("day", "day", "day", "morning", "dusk", "night")
LIGHTS = {"sun": "day", "moon": "night", "star": "night"}

VERSION = "3c7b808ca8cb1800b2d7090a7a4e31a07bc99142c1e2512200aea4bc254afefd"
"""The version of what is drawn: any text, another one whenever a scene gives other pixels, so that no cache or stored exemplar
takes the former pictures for the new ones. `tests/offline/scenes/test_version.py` tells when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSource:
    """One picture. It is drawn at the first `read`, and read from the cache folder afterwards."""

    number: int
    seed: int
    size: int
    clutter: float
    cache: Path

    @property
    def name(self) -> str:
        """For messages."""
        return f"drawn scene {self.number} of seed {self.seed}"

    @property
    def scene(self) -> Scene:
        """The scene graph, not yet settled."""
        return sample(f"{self.seed} picture {self.number}", self.clutter)

    def digest(self, scene: Scene) -> str:
        """Returns the SHA-256 of the picture's scene, of its size and of `VERSION`. No pixels are needed for it."""
        return hashlib.sha256(f"{VERSION} {self.size} {scene.dumps()}".encode()).hexdigest()

    def read(self) -> bytes:
        """Returns a PNG."""
        return self._read()[0]

    def load(self) -> Image.Image:
        """Returns the picture, RGB."""
        return self._read()[1]

    def _read(self) -> tuple[bytes, Image.Image]:
        scene = self.scene
        digest = self.digest(scene)
        path = self.cache / digest[:2] / f"{digest}.png"
        try:
            data = path.read_bytes()
            image = decode(data)
            if image.size == (self.size, self.size):
                return data, image
        except (OSError, ValueError):
            pass  # not drawn yet, or damaged
        pixels = render(settle(scene), self.size)
        data = EncodedImage.of(pixels).data
        keep(path, data)
        return data, Image.fromarray(pixels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenePicture(DatasetImage):
    """A drawn scene of a dataset."""

    source: SceneSource

    @property
    def recipe(self) -> str:
        """The settled scene."""
        return settle(self.source.scene).dumps()

    def load(self) -> Image.Image:
        """Returns the picture, RGB."""
        return self.source.load()


def pictures(count: int, seed: int, size: int, clutter: float, cache: Path) -> Iterator[ScenePicture]:
    """Yields pictures in turns for the explore and the test split. Each has a seed of its own: none is a copy of another."""
    for number in range(count):
        source = SceneSource(number=number, seed=seed, size=size, clutter=clutter, cache=cache)
        scene = source.scene
        main = kinds()[scene.figures[0].kind]
        yield ScenePicture(
            digest=source.digest(scene),
            source=source,
            kind="photo",
            caption=describe(scene),
            category="/".join((*main.wider[-1:], main.name)),
            split="test" if number % 2 else "explore",
        )


def sample(seed: str, clutter: float) -> Scene:
    """Returns a random scene. Place, colours and patterns are chosen; where figures stand is not."""
    r = Random(seed)
    scene = Scene(seed=r.getrandbits(62))
    scene = drawable(_crowd(scene, r) if r.random() < clutter else _view(scene, r))[0]
    return replace(scene, time="") if scene.place in TIMELESS else scene


def _view(scene: Scene, r: Random) -> Scene:
    # A few objects in a place, most of which belong there.
    place = r.choice(PLACES)
    homely = [name for name, kind in kinds().items() if place in kind.homes]
    figures: list[Figure] = []
    for nth in range(r.choice((1, 1, 2, 2, 3))):
        kind = r.choice(homely if r.random() < 0.75 else [k for k, each in kinds().items() if each.where != "shape"])
        size = r.choice(("", "", "", "", "small", "big")) if nth == 0 else ""
        if kind in (f.kind for f in figures):
            continue
        paint = _paint(kind, r, 0.12)
        more = r.choice((1, 1, 1, 2, 3)) if kinds()[kind].where != "sky" else 1
        figures += [Figure(id=len(figures) + n, kind=kind, paint=paint, size=size) for n in range(more)]
    grounded = all(kinds()[f.kind].where == "ground" for f in figures)
    if len(figures) == 2 and figures[0].kind != figures[1].kind and grounded and r.random() < 0.5:
        figures[0] = replace(figures[0], relation=r.choice(("beside", "behind", "in front of", "on")), to=1)
    lights = [LIGHTS[f.kind] for f in figures if f.kind in LIGHTS]
    time = lights[0] if lights else r.choice(_TIMES)
    weather = r.choice(WEATHERS) if r.random() < 0.25 and not lights else "clear"
    style = r.choice(STYLES) if r.random() < 0.08 else "flat"
    return replace(scene, figures=tuple(figures), place=place, time=time, weather=weather, style=style)


def _crowd(scene: Scene, r: Random) -> Scene:
    # Many objects that have nothing to do with one another, which cover one another, on any ground.
    names = list(kinds())
    figures = [
        Figure(id=n, kind=(kind := r.choice(names)), paint=_paint(kind, r, 0.4), size=r.choice(("", "", "big", "huge")))
        for n in range(r.randint(4, 9))
    ]
    if r.random() < 0.5:
        pattern = r.choice(PATTERNS)
        first, second = r.sample(list(COLOURS), 2)
        ground = Paint(colour=first, second=second, pattern=pattern)
        return replace(scene, figures=tuple(figures), place="plain", ground=ground, style="flat")
    place, time = r.choice(PLACES), r.choice(_TIMES)
    return replace(scene, figures=tuple(figures), place=place, time=time, weather="clear", style="flat")


def _paint(kind: str, r: Random, share: float) -> Paint:
    usual = kinds()[kind].colours
    if not usual:
        return Paint()
    colour = r.choice(usual if r.random() < 0.5 else tuple(COLOURS))
    pattern = r.choice(PATTERNS) if r.random() < share else ""
    return complete(Paint(colour=colour, pattern=pattern), (), r)
