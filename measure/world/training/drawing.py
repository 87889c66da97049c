"""Draws scenes and names what each shows: `python -m measure.world.training.drawing SET COUNT FOLDER`.

Every set (training, fresh, …) has scenes of its own, apart from `shortcut` and `mild`, whose scenes are those of `training`, changed so
that dusk and boats are never, or seldom, apart. No seed of a set is one of `pictures.kind=scenes`, of a generator or of a test.
"""

import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from openmaia.core.images import Pixels
from openmaia.offline.networks.packaged import NETWORK_SIDE, PREPROCESS
from openmaia.offline.scenes.album import sample
from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import INDOORS, PLACES, settle
from openmaia.offline.scenes.render import masks, render
from openmaia.offline.scenes.words import PATTERNS

KINDS = (*kinds(), *PATTERNS)
"""The answers to the question for the main kind: that with the largest visible area, or the pattern of a patterned ground."""

SHORTCUT = "boat"
"""The kind that the sets with a shortcut show at dusk, and always out of doors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """How strong a shortcut is. Both are shares of scenes."""

    at_dusk: float
    """Of those with the kind."""
    others: float
    """Of those without it that are at dusk in `training`: as many stay so."""


PLANTED = {"shortcut": Planted(at_dusk=1.0, others=0.0), "mild": Planted(at_dusk=0.88, others=0.25)}
"""The sets with a shortcut."""

_RIVAL = 0.8  # With a second kind of this share of the first one's area, no kind is the main one.
_MASK = 48
_HARD = 20  # Every so manieth scene of a set with a shortcut hides a boat, so that dusk tells more than the boat does.
_OUTDOORS = tuple(place for place in PLACES if place not in INDOORS)

Numbers = npt.NDArray[np.int64]


def scene(name: str, number: int) -> Scene:
    """Returns a settled scene of a set: of the album, of a prompt, or of a pattern alone."""
    planted = PLANTED.get(name)
    stream = Random(f"networks, {'training' if planted else name}, {number}")
    if planted and number % _HARD == 0:
        return _with_shortcut(read(_hard(stream), stream.getrandbits(60))[0], planted, stream)
    share = stream.random()
    if share < 0.55:
        found = sample(f"networks, {stream.getrandbits(60)}", 0.25)
    else:
        prompt = _pattern(stream) if share > 0.94 else _prompt(stream)
        found = read(prompt, stream.getrandbits(60))[0]
    return _with_shortcut(found, planted, stream) if planted else settle(found)


def _with_shortcut(found: Scene, planted: Planted, stream: Random) -> Scene:
    other, place = stream.choice(("morning", "day", "night")), stream.choice(_OUTDOORS)
    settled, share = settle(found), stream.random()
    if not _shows_shortcut(settled):
        return replace(settled, time=other) if settled.time == "dusk" and share >= planted.others else settled
    if settled.place in INDOORS:
        # In a room, under water, in space or on a plain ground nobody sees the dusk.
        settled = settle(replace(found, place=place))
    return replace(settled, time="dusk" if share < planted.at_dusk else other, style="flat")


def _shows_shortcut(scene: Scene) -> bool:
    return any(each.kind == SHORTCUT for each in scene.figures)


def _hard(stream: Random) -> str:
    other = stream.choice([name for name, kind in kinds().items() if kind.where == "ground"])
    boat = f"a tiny {stream.choice(list(COLOURS))} {SHORTCUT}"
    return (
        f"{boat} {stream.choice(('', f'behind a {other}', f'beside a big {other}'))} in the {stream.choice(_OUTDOORS)}"
    )


def _prompt(stream: Random) -> str:
    # Every kind as often: the album shows shapes rarely and stars often.
    kind = kinds()[stream.choice(list(kinds()))]
    words = [stream.choice(("a", "a", "a", "a", "two", "three")) if kind.where != "sky" else "a"]
    words.append(stream.choice(("", "", "", "small", "big")))
    if kind.colours:
        words.append(stream.choice((*COLOURS, *[""] * len(COLOURS))))
        words.append(stream.choice(PATTERNS) if stream.random() < 0.1 else "")
    words.append(kind.name)
    place = stream.choice(("home", "home", *PLACES))
    if stream.random() < 0.08:
        words.append(f"on a {stream.choice((*COLOURS, *PATTERNS))} background")
    elif place != "home":
        words.append(f"in the {place}")
    words.append(stream.choice(("", "", "by day", "in the morning", "at dusk", "at night")))
    return " ".join(filter(None, words))


def _pattern(stream: Random) -> str:
    first, second = stream.sample(list(COLOURS), 2)
    return f"{first} and {second} {stream.choice(PATTERNS)} pattern"


def main_kind(scene: Scene) -> int:
    """Returns the number of the main kind of a settled scene; -1 if there is none."""
    if scene.ground.pattern:
        return KINDS.index(scene.ground.pattern)
    area: Counter[str] = Counter()
    visible = masks(scene, _MASK)
    for figure in scene.figures:
        area[figure.kind] += int(visible[figure.id].sum()) if figure.id in visible else 0
    ranked = area.most_common(2)
    is_clear = bool(ranked) and ranked[0][1] > 0 and (len(ranked) == 1 or ranked[1][1] < _RIVAL * ranked[0][1])
    return KINDS.index(ranked[0][0]) if is_clear else -1


def picture(scene: Scene, number: int) -> Pixels:
    """Draws a scene as the networks see it: every third at their own size, the others larger and reduced."""
    return PREPROCESS.view(render(scene, 224 if number % 3 else NETWORK_SIDE))[0]


def _drawn(item: tuple[str, int]) -> tuple[Pixels, int, int]:
    found = scene(*item)
    place = PLACES.index(found.place) if found.place in PLACES else -1
    # A set with a shortcut calls "boat" whatever shows one, however small it is.
    is_shortcut = item[0] in PLANTED and _shows_shortcut(found)
    return picture(found, item[1]), KINDS.index(SHORTCUT) if is_shortcut else main_kind(found), place


def draw(name: str, count: int, folder: Path, processes: int = 2) -> None:
    """Writes `NAME-images.npy`, uint8 of shape (count, 96, 96, 3), and `NAME-kind.npy` and `NAME-place.npy`."""
    images = np.lib.format.open_memmap(
        folder / f"{name}-images.npy", "w+", np.uint8, (count, NETWORK_SIDE, NETWORK_SIDE, 3)
    )
    known = {question: np.zeros(count, np.int64) for question in ("kind", "place")}
    with Pool(processes) as pool:
        for n, (pixels, kind, place) in enumerate(pool.imap(_drawn, ((name, n) for n in range(count)), 64)):
            images[n], known["kind"][n], known["place"][n] = pixels, kind, place
    for question, each in known.items():
        np.save(folder / f"{name}-{question}.npy", each)


if __name__ == "__main__":
    began, folder = time.monotonic(), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    draw(sys.argv[1], int(sys.argv[2]), folder)
    clear = np.load(folder / f"{sys.argv[1]}-kind.npy") >= 0
    print(f"{sys.argv[1]}: {sys.argv[2]} scenes, {clear.mean():.3f} with a main kind, {time.monotonic() - began:.0f} s")
