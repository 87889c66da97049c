"""Says whether a scene shows what a phrase names."""

import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache

from openmaia.offline.scenes.grammar import LONGEST, Reader
from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import INDOORS
from openmaia.offline.scenes.render import GREY_STYLES
from openmaia.offline.scenes.words import SCENERY, STRIPES, members

GROUND = -1
"""Stands for what is no figure among the ids of `locate`."""

_EXCEPT = re.compile(r"(?:^|[ ,]+)(?:but |and |with )?(?:without(?: any)?|no|not) ", re.IGNORECASE)
_EITHER, _FIRST = re.compile(r",? or ", re.IGNORECASE), re.compile(r"^either ", re.IGNORECASE)


@lru_cache(maxsize=4096)
def _read(phrase: str) -> Reader:
    return Reader(phrase, 0, is_question=True)


def holds(scene: Scene, phrase: str) -> bool | None:
    """Returns whether a settled scene shows a phrase such as "a red boat", "two cats", "at night", "a cat on a table", "a cat or
    a dog" or "a boat without birds". What follows "without", "no" or "not" is all that must not be shown.

    A stated number has to be exact. None if the phrase has words that are not known, or what it names belongs to the
    scenery, of which nothing more is known.
    """
    shown, denied = _clauses(phrase)
    found = [_not(_any(scene, each, is_denied=True)) for each in denied]
    return _all([*found, _any(scene, shown)] if shown or not denied else found)


def _any(scene: Scene, phrases: Sequence[str], *, is_denied: bool = False) -> bool | None:
    return _not(_all([_not(_shows(scene, each, is_denied=is_denied)) for each in phrases]))


def _all(found: Sequence[bool | None]) -> bool | None:
    return False if False in found else None if None in found else True


def _not(found: bool | None) -> bool | None:
    return None if found is None else not found


@lru_cache(maxsize=4096)
def _clauses(phrase: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    # What may be shown, each alone, and the same of what must not be.
    if len(phrase) > LONGEST:
        return [phrase], []  # the grammar does not read it to its end
    shown, *denied = _EXCEPT.split(" ".join(phrase.split()))
    return _alternatives(shown) if shown or not denied else [], [_alternatives(each) for each in denied]


def alternatives(phrase: str) -> Sequence[str]:
    """Returns the phrases of which each alone is what a phrase names: "a cat" and "a dog" for "a cat or a dog", and the phrase
    itself if there is no "or". What must not be shown is part of each. An adjective of several ("a red or blue ball") stays with
    one."""
    shown, denied = _clauses(phrase)
    if len(shown) < 2:
        return [phrase]
    excepted = "".join(f" without {' or '.join(each)}" for each in denied)
    return [f"{each}{excepted}" for each in shown]


def _alternatives(phrase: str) -> Sequence[str]:
    first, *rest = _EITHER.split(_FIRST.sub("", phrase))
    listed = first.split(", ")  # "a cat, a dog or a boat", but not "at night, a cat or a boat"
    is_list = bool(rest) and all(_read(each).scene.figures for each in listed)
    parts = [*listed, *rest] if is_list else [first, *rest]
    # "A red or blue ball" and "a boat at night or dusk" have a part that is no phrase of its own.
    scenes = [_read(each).scene for each in parts]
    is_joint = any(_read(each).names_paint for each in parts[:-1]) and any(
        figure.paint != Paint() for figure in scenes[-1].figures
    )
    is_joint = is_joint or any(
        one.figures
        and not other.figures
        and {what for what, _ in _settings(one)} & {what for what, _ in _settings(other)}
        for number, one in enumerate(scenes)
        for other in scenes[number + 1 :]
    )
    return [phrase] if is_joint else parts


def _shows(scene: Scene, phrase: str, *, is_denied: bool = False) -> bool | None:
    asked = _read(phrase)
    if asked.missing or not (asked.scene.figures or _settings(asked.scene)):
        return None
    if asked.names_paint:
        return _shows_paint(scene, asked.scene.ground)
    if not all(_is_set(scene, what, name, asked.scene.ground) for what, name in _settings(asked.scene)):
        return False
    found = find(scene, asked)
    known: list[bool | None] = []
    for figure in asked.scene.figures:
        count, number = asked.counts[figure.id], len(found[figure.id])
        # "Without birds": not one.
        enough = number == count if count > 0 else number >= (2 if count < 0 and not is_denied else 1)
        known.append(
            enough or (False if count > 0 or not _is_scenery(scene, figure) else None if _says_more(figure) else True)
        )
    return _all(known)


def locate(scene: Scene, phrase: str) -> Set[int]:
    """Returns the ids of the figures by which a settled scene shows a phrase, with GROUND for its ground, place or scenery; all
    for what concerns the whole picture, such as the time. Empty if it does not show it, or that is not known."""
    if not holds(scene, phrase):
        return frozenset()
    shown, _ = _clauses(phrase)
    if not shown:
        return _located(scene, phrase)
    return frozenset(one for each in shown if _shows(scene, each) for one in _located(scene, each))


def _located(scene: Scene, phrase: str) -> Set[int]:
    asked = _read(phrase)
    if asked.names_paint:
        paint = asked.scene.ground
        painted = {f.id for f in scene.figures if any(_has_paint(each, paint) for each in _paints(f))}
        return painted | ({GROUND} if _has_paint(scene.ground, paint) else set())
    if not asked.scene.figures:
        is_whole = any(what != "place" for what, _ in _settings(asked.scene))
        return {GROUND, *(f.id for f in scene.figures if is_whole)}
    found, inner = find(scene, asked), {each.to for each in asked.scene.figures}
    return {one for each in asked.scene.figures if each.id not in inner for one in found[each.id] or (GROUND,)}


def _paints(figure: Figure) -> Sequence[Paint]:
    return figure.paint, *(paint for _, paint in figure.parts)


def find(scene: Scene, asked: Reader) -> Mapping[int, Sequence[int]]:
    """Returns the ids of the figures of a scene that each figure of a question can be."""
    found = {each.id: [f.id for f in scene.figures if _is_alike(scene, f, each)] for each in asked.scene.figures}
    by_id = {each.id: each for each in scene.figures}
    for each in asked.scene.figures:
        if each.to in found:
            found[each.id] = [
                one
                for one in found[each.id]
                if any(_is_related(by_id[one], each.relation, by_id[to]) for to in found[each.to])
            ]
    return found


def _settings(scene: Scene) -> list[tuple[str, str]]:
    named = [(what, getattr(scene, what)) for what in ("place", "time", "weather", "style")]
    return [each for each in named if each[1]]


def _is_set(scene: Scene, what: str, name: str, ground: Paint) -> bool:
    if (what, name) == ("place", "sky"):
        return scene.place not in INDOORS
    if (what, name) == ("place", "plain"):
        return scene.place == "plain" and _has_paint(scene.ground, ground)
    return getattr(scene, what) == name


def _shows_paint(scene: Scene, paint: Paint) -> bool:
    if scene.style in GREY_STYLES and paint.colour:
        return False
    return any(_has_paint(each, paint) for each in scene.paints)


def _has_paint(own: Paint, asked: Paint) -> bool:
    colours = {own.colour, own.second} if own.pattern else {own.colour}
    patterns = (asked.pattern, *STRIPES) if asked.pattern == "stripes" else (asked.pattern,)
    return {asked.colour, asked.second} - {""} <= colours and (not asked.pattern or own.pattern in patterns)


def _is_alike(scene: Scene, figure: Figure, asked: Figure) -> bool:
    if figure.kind not in members(asked.kind) or not _has_paint(figure.paint, asked.paint):
        return False
    if scene.style in GREY_STYLES and asked.paint.colour:
        return False
    parts = dict(figure.parts)
    if not all(name in parts and _has_paint(parts[name], paint) for name, paint in asked.parts):
        return False
    return _has_size(figure, asked.size) and _is_at(figure, asked.side) and (figure.is_lifted or not asked.is_lifted)


def _has_size(figure: Figure, asked: str) -> bool:
    if not asked:
        return True
    spot = figure.spot
    area = spot.height**2 * kinds()[figure.kind].width / 100 if spot else 0.0
    usual = "big" if area > 0.2 else "small" if area < 0.02 else ""
    own = figure.size or usual
    return own in {"big": ("big", "huge"), "small": ("small", "tiny")}.get(asked, (asked,))


def _is_at(figure: Figure, side: str) -> bool:
    spot = figure.spot
    if not side or spot is None:
        return not side
    middle = spot.y - spot.height / 2
    return {
        "left": spot.x < 0.4,
        "right": spot.x > 0.6,
        "middle": 0.35 < spot.x < 0.65,
        "top": middle < 0.4,
        "bottom": middle > 0.6,
        "far": spot.far > 0.2,
        "near": spot.far < 0.12,
    }[side]


def _is_related(figure: Figure, relation: str, to: Figure) -> bool:
    if figure.id == to.id or figure.spot is None or to.spot is None:
        return False
    if relation == "left of":
        return figure.spot.x < to.spot.x
    if relation == "right of":
        return figure.spot.x > to.spot.x
    if relation == "beside":
        return figure.to == to.id and figure.relation in ("beside", "left of", "right of")
    return (figure.relation, figure.to) == (relation, to.id)


def _is_scenery(scene: Scene, figure: Figure) -> bool:
    outside = () if scene.place in INDOORS else (scene.weather, scene.time if scene.weather == "clear" else "")
    return any(figure.kind in SCENERY.get(each, ()) for each in (scene.place, *outside))


def _says_more(figure: Figure) -> bool:
    return bool(figure.paint != Paint() or figure.parts or figure.size or figure.side or figure.relation)
