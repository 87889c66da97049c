"""Compares the viewer's sentences with fresh scenes: `python -m measure.world.eyes.evaluate STREAM COUNT [CSV] [WEIGHTS]`."""

import csv
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from measure.world.eyes.scenes import VisibleFigure, album_scene, draw
from openmaia.offline.scenes.captions import describe
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.graph import Paint, Scene
from openmaia.offline.scenes.layout import TIMELESS
from openmaia.offline.scenes.render import GREY_STYLES
from openmaia.offline.viewer.seeing import SceneEyes

Look = tuple[str, frozenset[str], str]
"""Kind, colours and pattern."""

# The sentence has to name what covers at least this share of the picture. What is seen at all, it may name.
_PLAIN_TO_SEE = 0.01
# Of figures that are nearly as large as the largest one, any may come first.
_NEARLY = 0.8
_SIZES = (96, 128, 224)


def _look(kind: str, paint: Paint, *, is_grey: bool) -> Look:
    colours = {paint.colour, paint.second if paint.pattern else ""} - {""}
    return kind, frozenset() if is_grey else frozenset(colours), paint.pattern


def compare(scene: Scene, visible: Sequence[VisibleFigure], said: Scene) -> dict[str, bool | None]:
    """Returns whether each part of what was said is right. None: the scene does not have that part."""
    is_grey = scene.style in GREY_STYLES
    looks = [(_look(each.figure.kind, each.figure.paint, is_grey=is_grey), each.area) for each in visible]
    present = Counter(look for look, _ in looks)
    required = Counter(look for look, area in looks if area >= _PLAIN_TO_SEE)
    named = Counter(_look(each.kind, each.paint, is_grey=is_grey) for each in said.figures)
    first = _look(said.figures[0].kind, said.figures[0].paint, is_grey=is_grey) if said.figures else None
    largest = max((area for _, area in looks), default=0.0)
    main = [look for look, area in looks if area >= _NEARLY * largest]
    has_colour = not is_grey and any(look[1] for look in main)
    right: dict[str, bool | None] = {
        "kind": bool(first) and first[0] in [look[0] for look in main],
        "colour": (bool(first) and first[:2] in [look[:2] for look in main]) if has_colour else None,
        "pattern": bool(first) and (first[0], first[2]) in [(look[0], look[2]) for look in main],
        "place": said.place == scene.place,
        "time": None if scene.place in TIMELESS else said.time == scene.time,
        "weather": None if scene.place in TIMELESS else (said.weather or "clear") == scene.weather,
        "style": said.style == scene.style,
        "ground": _look("", said.ground, is_grey=is_grey) == _look("", scene.ground, is_grey=is_grey)
        if scene.place == "plain"
        else None,
        "nothing false": named <= present,
        "nothing left out": required <= named,
    }
    right["figures"] = bool(right["nothing false"] and right["nothing left out"])
    right["sentence"] = all(
        right[name] is not False for name in ("figures", "place", "time", "weather", "style", "ground")
    )
    return right


def measure(stream: str, count: int, sizes: Sequence[int], eyes: SceneEyes) -> list[dict[str, object]]:
    """Returns a row for each scene and size."""
    rows: list[dict[str, object]] = []
    for number in range(count):
        scene = album_scene(stream, number)
        for size in sizes:
            pixels, visible = draw(scene, size)
            seen = eyes.see(pixels)
            back, missing = read(seen.sentence, 0)
            right = compare(scene, visible, seen.scene)
            right["readable"] = not missing and len(back.figures) == len(seen.figures)
            crowd = "crowd" if len({each.kind for each in scene.figures}) > 3 else "view"
            rows.append(
                {"scene": number, "size": size, "sort": crowd, **right, "shown": describe(scene), "said": seen.sentence}
            )
    return rows


def shares(rows: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Returns the percentage of each column that is right, with the number of scenes that have the part, if not all have it."""
    found: dict[str, str] = {}
    for name in [name for name, each in rows[0].items() if isinstance(each, bool) or each is None]:
        known = [bool(row[name]) for row in rows if row[name] is not None]
        of = f" (of {len(known)})" if len(known) < len(rows) else ""
        found[name] = f"{100 * sum(known) / max(len(known), 1):.1f}{of}"
    return found


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Returns the percentages as Markdown: by size, and for the largest size those of views and of crowds."""
    columns = {f"{size} px": [row for row in rows if row["size"] == size] for size in _SIZES}
    largest = columns[f"{_SIZES[-1]} px"]
    columns |= {
        f"{_SIZES[-1]} px, {sort}s": [row for row in largest if row["sort"] == sort] for sort in ("view", "crowd")
    }
    found = {f"{name}, {len(each)}": shares(each) for name, each in columns.items()}
    lines = ["| right, in % | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    names = list(next(iter(found.values())))
    return "\n".join(
        [*lines, *(f"| {name} | " + " | ".join(each[name] for each in found.values()) + " |" for name in names)]
    )


def main(stream: str, count: int, path: str, weights: str) -> None:
    """Prints a table, and writes the rows as CSV if a path is given."""
    torch.set_num_threads(1)
    eyes = SceneEyes(Path(weights)) if weights else SceneEyes()
    rows = measure(stream, count, _SIZES, eyes)
    print(table(rows))
    if path:
        with Path(path).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    stream, count, path, weights = (*sys.argv[1:], "", "")[:4]
    main(stream, int(count), path, weights)
