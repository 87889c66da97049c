"""Settles what a prompt leaves open: place, time, colours, and where each figure stands.

Each figure has its own random stream, by its id. Therefore two scenes with the same seed that differ in a word are a matched pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from openmaia.offline.scenes.graph import Figure, Paint, Scene, Spot
from openmaia.offline.scenes.kinds import Kind, kinds

HORIZON: Mapping[str, float] = {
    "sea": 0.56,
    "beach": 0.62,
    "meadow": 0.6,
    "forest": 0.64,
    "mountains": 0.66,
    "desert": 0.6,
    "snow": 0.6,
    "street": 0.68,
    "room": 0.68,
    "underwater": 0.84,
    "sky": 1.0,
    "space": 1.0,
    "plain": 0.66,
}
"""Where the ground begins on which figures stand. The keys are all places."""

PLACES = tuple(place for place in HORIZON if place != "plain")
"""All places but `plain`."""

INDOORS = ("room", "underwater", "space", "plain")
"""Places without weather."""

TIMELESS = ("space", "plain")
"""Places without a time of day."""

_DAYLIGHT = ("day", "day", "day", "day", "morning", "dusk")
SIZES = {"tiny": 0.36, "small": 0.6, "": 1.0, "big": 1.45, "huge": 2.0}
_CROWD = (1.3, 1.3, 1.1, 0.96, 0.84, 0.76, 0.7, 0.64, 0.6, 0.56)
SIDES = {"left": (0.14, 0.34), "right": (0.66, 0.86), "middle": (0.46, 0.54)}
_AGAINST = {"white": "red blue black green", "black": "white yellow pink", "yellow": "blue black red white"}
_TRIES = 12

Box = tuple[float, float, float, float]


def settle(scene: Scene) -> Scene:
    """Returns the scene with nothing left open. What is settled already stays."""
    stream = Random(f"{scene.seed} scene")
    first = kinds()[scene.figures[0].kind] if scene.figures else None
    homes = (first.homes if first else ()) or PLACES
    home, hour = stream.choice(homes), stream.random()
    place = scene.place or home
    times = ("night", "night", "dusk") if any(f.kind in ("star", "moon") for f in scene.figures) else _DAYLIGHT
    time = "day" if place in TIMELESS else scene.time or times[int(hour * len(times))]
    scene = replace(
        scene,
        place=place,
        time=time,
        weather=("clear" if place in INDOORS else scene.weather) or "clear",
        style=scene.style or "flat",
        ground=complete(scene.ground, ("white", "grey", "blue", "green", "pink"), stream)
        if place == "plain"
        else Paint(),
    )
    return replace(scene, figures=_arranged(scene))


def complete(paint: Paint, usual: Sequence[str], stream: Random) -> Paint:
    """Returns a paint with nothing left open, and two colours that differ for a pattern."""
    colour, other = stream.random(), stream.random()
    main = paint.colour or (usual[int(colour * len(usual))] if usual else "")
    against = _AGAINST.get(main, "white white yellow black").split()
    if paint.pattern == "bricks":
        against = ["white" if main not in ("white", "yellow") else "grey"]
    second = (paint.second if paint.second != main else "") or (
        against[int(other * len(against))] if paint.pattern else ""
    )
    return replace(paint, colour=main, second=second)


def _arranged(scene: Scene) -> tuple[Figure, ...]:
    # The paint of a figure that has its place can be open after an edit.
    done = {each.id: _painted(each, _stream(scene, each)) for each in scene.figures if each.spot}
    waiting = [each for each in scene.figures if not each.spot]
    known = {each.id for each in scene.figures}
    while waiting:
        # A figure comes after the one that it stands on. Those that refer to one another in a circle stand freely.
        ready = [each for each in waiting if each.to in done or each.to not in known] or waiting[:1]
        for each in ready:
            done[each.id] = _settled(each, scene, done)
        waiting = [each for each in waiting if each.id not in done]
    return tuple(done[each.id] for each in scene.figures)


def _stream(scene: Scene, figure: Figure) -> Random:
    return Random(f"{scene.seed} figure {figure.id}")


def _painted(figure: Figure, stream: Random) -> Figure:
    paint = complete(figure.paint, kinds()[figure.kind].colours, stream)
    parts = tuple((name, complete(each, (paint.colour,), stream)) for name, each in figure.parts)
    return replace(figure, paint=paint, parts=parts)


def _settled(figure: Figure, scene: Scene, done: Mapping[int, Figure]) -> Figure:
    stream, kind = _stream(scene, figure), kinds()[figure.kind]
    figure = _painted(figure, stream)
    height = kind.height * SIZES[figure.size] * _CROWD[min(len(scene.figures), 9)] * stream.uniform(0.92, 1.08)
    if any(other.to == figure.id and other.relation in ("on", "above", "under") for other in scene.figures):
        height *= 0.85 if kind.where == "ground" else 1.0
    height = min(height, 0.9, 94 / kind.width)
    flip, tilt = stream.random() < 0.5 and kind.width > 80, stream.uniform(-1, 1)
    angle = tilt * (8 if _level(kind, figure, scene.place) == "air" else 0)
    target = done.get(figure.to)
    taken = [_box(kinds()[each.kind], each.spot) for each in done.values() if each.spot and each is not target]
    best, least = None, 1e9
    for _ in range(_TRIES):
        if target is not None and target.spot is not None:
            angle = 0.0
            spot = _related(figure.relation, kind, height, kinds()[target.kind], target.spot, stream)
        else:
            spot = _drawn(figure, kind, height, scene.place, stream, alone=len(scene.figures) == 1)
        cost = sum(_overlap(_box(kind, spot), other) for other in taken)
        if cost < least - 0.02:
            best, least = spot, cost
    assert best is not None
    return replace(figure, spot=replace(best, flip=flip, angle=round(angle, 2)))


def _level(kind: Kind, figure: Figure, place: str) -> str:
    # Where a figure is in a place: ground, air, sky, horizon, water.
    if kind.where == "shape" or figure.is_lifted or (place in ("sky", "space") and kind.where not in ("sky", "far")):
        return "air"
    if place == "underwater":
        return "air" if kind.where in ("swim", "air", "far", "sky") else "ground"
    if place == "sea":
        return "water" if kind.where in ("water", "swim", "ground") else kind.where
    return "ground" if kind.where in ("water", "swim") else "air" if kind.where == "far" else kind.where


def _drawn(figure: Figure, kind: Kind, height: float, place: str, stream: Random, *, alone: bool) -> Spot:
    level, horizon = _level(kind, figure, place), HORIZON[place]
    across, along = stream.random(), stream.random()
    low, high = SIDES.get(figure.side, (0.38, 0.62) if alone else (0.12, 0.88))
    far = 0.0
    if level in ("ground", "water"):
        deep = (0.55 if alone else 0.25) + along * (0.35 if alone else 0.65)
        deep = {"top": 0.1, "far": 0.05, "bottom": 1.0, "near": 1.0}.get(figure.side, deep)
        y = horizon + 0.04 + (0.95 - horizon - 0.04) * deep
        height *= 0.7 + 0.3 * deep if not alone or figure.side else 1.0
        y, far = max(y, min(height + 0.03, 0.96)), 0.3 * (1 - deep)
        if place == "plain" and alone and not figure.side:
            y, far = 0.52 + height / 2, 0.0
    elif level == "horizon":
        y, far = horizon + 0.015, 0.25
    else:
        floor = min(horizon, 0.96) if level == "air" else min(horizon, 0.7)
        room = max(floor - height - 0.06, 0.0)
        y = (
            0.04
            + height
            + room * {"top": 0.0, "bottom": 1.0}.get(figure.side, along * 0.9 if horizon < 1 else 0.1 + along * 0.8)
        )
        if alone and not figure.side:
            y = 0.04 + height + room * (0.25 + 0.5 * along)
        if place == "plain" and not figure.side and (alone or kind.where == "shape"):
            y = 0.5 + height / 2 + 0.2 * (along - 0.5) * (1 - height)
    half = kind.width * height / 200
    x = min(max(low + across * (high - low), min(half, 0.5)), 1 - min(half, 0.5))
    return Spot(
        x=round(x, 4), y=round(y, 4), height=round(height, 4), far=round(far, 3), floats=level in ("air", "sky")
    )


def _related(relation: str, kind: Kind, height: float, other: Kind, at: Spot, stream: Random) -> Spot:
    width, shift = other.width * at.height / 100, stream.uniform(-1, 1)
    side = (
        -1 if relation == "left of" or (relation != "right of" and (at.x > 0.68 or (shift < 0 and at.x > 0.32))) else 1
    )
    x, y, floats, far = at.x, at.y, at.floats, at.far
    if relation == "on":
        height = min(height, 75 * max(width, 0.2) / kind.width, 0.75 * at.height + 0.1)
        y = at.y - at.height * other.top / 100 + 0.004
        height = max(min(height, y - 0.03), 0.06)
        x, floats = at.x + shift * 0.12 * width, True
    elif relation == "under":
        height = min(height, 0.6 * at.height, 60 * width / kind.width) if not at.floats else height
        y = at.y + 0.004 if not at.floats else max(at.y + height + 0.05, 0.9)
        x, floats = at.x + shift * 0.08 * width, False
    elif relation == "above":
        height = min(height, max(at.y - at.height - 0.06, 0.08))
        y, floats = max(at.y - at.height - 0.03, height + 0.02), True
    elif relation in ("behind", "in front of"):
        ahead = 1 if relation == "in front of" else -1
        height *= 0.8 if ahead > 0 else 1.0
        x, y, far = at.x + side * 0.42 * width, at.y + ahead * 0.05, max(at.far - ahead * 0.08, 0.0)
    else:
        x = at.x + side * (width + kind.width * height / 100 + 0.05) / 2
        room = (1.0 - at.x if side > 0 else at.x) - width / 2 - 0.03
        if kind.width * height / 100 > room:
            height = max(room * 100 / kind.width, 0.5 * height)
            x = at.x + side * (width / 2 + 0.03 + kind.width * height / 200)
    half = min(kind.width * height / 200, 0.5)
    x = min(max(x, half * 0.9), 1 - half * 0.9)
    y = min(y, 0.98)
    return Spot(x=round(x, 4), y=round(y, 4), height=round(height, 4), far=round(far, 3), floats=floats)


def _box(kind: Kind, spot: Spot) -> Box:
    half = kind.width * spot.height / 200
    return spot.x - half, spot.y - spot.height, spot.x + half, spot.y


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or tall <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return wide * tall / max(min(areas), 1e-6)


def ordered(scene: Scene) -> list[Figure]:
    """Returns the figures of a settled scene from back to front."""
    by_id = {each.id: each for each in scene.figures}

    def key(figure: Figure, depth: int = 0) -> tuple[float, ...]:
        layer = {"sky": 0, "horizon": 1, "far": 2, "air": 3}.get(kinds()[figure.kind].where, 4)
        spot, target = figure.spot, by_id.get(figure.to)
        if target is not None and depth < 12:
            step = -1 if figure.relation == "behind" else 1 if figure.relation in ("on", "under", "in front of") else 0
            if step:
                layer, foot, nth, _ = key(target, depth + 1)
                return layer, foot, nth + step, figure.id
        return layer, spot.y if spot else 0.0, 0, figure.id

    return sorted(scene.figures, key=key)
