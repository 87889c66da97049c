"""Draws the scenes that the viewer's network learns, is tuned and is measured on: `python -m measure.world.eyes.scenes PATH STREAM COUNT`."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from openmaia.core.images import Mask, Pixels
from openmaia.offline.scenes.album import sample
from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.grammar import drawable
from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import PLACES, SIZES, complete, settle
from openmaia.offline.scenes.render import GREY_STYLES, render_with_masks
from openmaia.offline.scenes.words import PATTERNS

SIDE = 128
ANSWERS = {
    "kind": tuple(kinds()),
    "colour": tuple(COLOURS),
    "pattern": ("", *PATTERNS),
    "place": (*PLACES, "plain"),
    "time": ("morning", "day", "dusk", "night"),
    "weather": ("clear", "cloudy", "rain", "storm", "snowfall", "fog"),
    "style": ("flat", "outlined", "pencil drawing", "night vision", "greyscale", "pixelated", "blurred"),
    "ground colour": tuple(COLOURS),
    "ground pattern": ("", *PATTERNS),
}
MOST_FIGURES = 12

# Shares of the scenes that the album does not have, but that prompts ask for.
_EXTRAS = {"coloured ground": 0.12, "patterned ground": 0.07, "ground alone": 0.04, "place alone": 0.05, "single": 0.09}


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleFigure:
    """A figure and where it can be seen, in shares of the picture."""

    figure: Figure
    box: tuple[float, float, float, float]
    """Left, top, right, bottom."""
    area: float


def album_scene(stream: str, number: int) -> Scene:
    """Returns a settled scene such as those of `pictures.kind=scenes`, of other seeds."""
    return settle(sample(f"viewer {stream} {number}", 0.25))


def varied_scene(stream: str, number: int) -> Scene:
    """Returns a scene of the album, or one of a sort that only prompts ask for."""
    r = Random(f"viewer variety {stream} {number}")
    (sort,) = r.choices([*_EXTRAS, ""], [*_EXTRAS.values(), 1 - sum(_EXTRAS.values())])
    scene = sample(f"viewer {stream} {number}", 0.1 if sort else 0.25)
    style = scene.style if r.random() < 0.5 else "flat"
    if sort in ("coloured ground", "patterned ground", "ground alone"):
        is_patterned = sort == "patterned ground" or (sort == "ground alone" and r.random() < 0.8)
        ground = complete(
            Paint(colour=r.choice(list(COLOURS)), pattern=r.choice(PATTERNS) if is_patterned else ""), (), r
        )
        if is_patterned and r.random() < 0.5:
            ground = replace(ground, second=r.choice([each for each in COLOURS if each != ground.colour]))
        figures = () if sort == "ground alone" else scene.figures[: r.choice((1, 1, 2, 3))]
        if figures and r.random() < 0.6:
            figures = _others(figures, r)
        scene = replace(scene, place="plain", ground=ground, time="", weather="", style=style, figures=figures)
    elif sort == "place alone":
        scene = replace(scene, figures=())
    elif sort == "single":
        size = r.choice(list(SIZES))
        scene = replace(
            scene, figures=_others((replace(scene.figures[0], size=size),), r), place=r.choice(PLACES), style=style
        )
    return settle(drawable(scene)[0])


def _others(figures: tuple[Figure, ...], r: Random) -> tuple[Figure, ...]:
    # Figures of any kinds.
    def other(figure: Figure) -> Figure:
        kind = kinds()[r.choice(list(kinds()))]
        if not kind.colours:
            return Figure(id=figure.id, kind=kind.name, size=figure.size)
        colour, pattern = r.choice(list(COLOURS)), r.choice(PATTERNS) if r.random() < 0.25 else ""
        return Figure(
            id=figure.id, kind=kind.name, size=figure.size, paint=complete(Paint(colour=colour, pattern=pattern), (), r)
        )

    return tuple(other(each) for each in figures)


def draw(scene: Scene, side: int) -> tuple[Pixels, list[VisibleFigure]]:
    """Returns the picture of a settled scene, and its figures of which something is seen."""
    pixels, masks = render_with_masks(scene, side)
    return pixels, [
        _visible(each, masks[each.id]) for each in scene.figures if each.id in masks and masks[each.id].any()
    ]


def _visible(figure: Figure, mask: Mask) -> VisibleFigure:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    left, top, right, bottom = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    height, width = mask.shape
    return VisibleFigure(
        figure=figure,
        box=(float(left / width), float(top / height), float(right / width), float(bottom / height)),
        area=float(mask.mean()),
    )


def rows(scene: Scene, visible: list[VisibleFigure]) -> dict[str, npt.NDArray[np.generic]]:
    """Returns the labels of a scene. An answer of -1 is not known."""
    figures = np.full((MOST_FIGURES, 2), -1, np.int16)
    boxes = np.zeros((MOST_FIGURES, 5), np.float32)
    colours = np.zeros((MOST_FIGURES, len(COLOURS)), np.int8)
    is_grey = scene.style in GREY_STYLES
    for n, each in enumerate(visible[:MOST_FIGURES]):
        paint = each.figure.paint
        figures[n] = ANSWERS["kind"].index(each.figure.kind), ANSWERS["pattern"].index(paint.pattern)
        boxes[n] = (*each.box, each.area)
        colours[n] = -1 if is_grey or not paint.colour else _colours(paint)
    timeless = scene.place in ("space", "plain")
    return {
        "figures": figures,
        "boxes": boxes,
        "colours": colours,
        "place": np.int8(ANSWERS["place"].index(scene.place)),
        "time": np.int8(-1 if timeless else ANSWERS["time"].index(scene.time)),
        "weather": np.int8(-1 if timeless else ANSWERS["weather"].index(scene.weather)),
        "style": np.int8(ANSWERS["style"].index(scene.style)),
        "ground colour": -np.ones(12, np.int8) if is_grey or scene.place != "plain" else _colours(scene.ground),
        "ground pattern": np.int8(
            ANSWERS["ground pattern"].index(scene.ground.pattern) if scene.place == "plain" else -1
        ),
    }


def _colours(paint: Paint) -> npt.NDArray[np.int8]:
    # Which of the two colours of a pattern comes first cannot be seen.
    return np.array([each in (paint.colour, paint.second) for each in COLOURS], np.int8)


def _drawn(stream: str, count: int) -> Iterator[dict[str, npt.NDArray[np.generic]]]:
    for number in range(count):
        scene = varied_scene(stream, number)
        pixels, visible = draw(scene, SIDE)
        yield {"pixels": pixels, **rows(scene, visible)}


def main(path: Path, stream: str, count: int) -> None:
    """Writes pictures and labels as an NPZ file."""
    began = time.process_time()
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for number, row in enumerate(_drawn(stream, count)):
        columns = columns or {name: np.zeros((count, *np.shape(each)), each.dtype) for name, each in row.items()}
        for name, each in row.items():
            columns[name][number] = each
    np.savez(path, **columns)
    print(f"{count} scenes of the stream {stream!r}: {time.process_time() - began:.0f} s of one core")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
