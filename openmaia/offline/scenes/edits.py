"""Changes a settled scene by an instruction. What the instruction does not name stays where and as it is."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from openmaia.offline.scenes.grammar import MAX_FIGURES, Reader, Token, drawable, tokens
from openmaia.offline.scenes.graph import Figure, Paint, Scene, Spot
from openmaia.offline.scenes.kinds import Kind, kinds
from openmaia.offline.scenes.layout import HORIZON, SIDES, SIZES, settle
from openmaia.offline.scenes.truth import find

_REMOVE = re.compile(r"(?:remove|delete|erase|take away|take out|get rid of|hide)\s+(?P<old>.+)")
_REPLACE = re.compile(
    r"(?:replace|swap|exchange|substitute|change|turn|transform|convert)\s+(?P<old>.+?)\s+(?:with|by|for|to|into)\s+(?P<new>.+)"
)
_ADD = re.compile(
    r"(?:add|insert|include|draw|put in|put|place)\s+(?P<new>.+?)(?:\s+(?:to|into) (?:the )?(?:picture|image|scene|photo|it))?"
)
_CHANGE = re.compile(
    r"(?:make|paint|colou?r|change|turn|set|move|shift|put|place|let|give|have|render|draw|show)\s+"
    r"(?:the colou?r of\s+|the style (?:of\s+)?)?(?P<what>.+)"
)
_NOUNS = ("kind", "group")
_SETTINGS = ("place", "time", "weather", "style")
_MAX = 600


def edit(scene: Scene, instruction: str) -> tuple[Scene, tuple[str, ...]]:
    """Returns the changed scene, settled, and what could not be done: then nothing is changed, or only the rest."""
    text = re.sub(r"\s+", " ", instruction[: _MAX + 1].lower()).strip(" .!?")
    text = re.sub(r"^(?:please|now|then|can you|could you)\s+", "", text)
    refused = (scene, (instruction.strip()[:80] or "an empty instruction",))
    if len(instruction) > _MAX:
        return refused
    if match := _REMOVE.fullmatch(text):
        changed = _without(scene, match["old"])
    elif match := _REPLACE.fullmatch(text):
        changed = _replaced(scene, match["old"], match["new"])
    elif (match := _ADD.fullmatch(text)) and not _names_present(scene, match["new"]):
        changed = _added(scene, match["new"])
    else:
        match = _CHANGE.fullmatch(text)
        changed = _changed(scene, match["what"] if match else text)
    if changed is None:
        return refused
    after, missing = changed
    # Before it is settled, because a colour that is then chosen was not asked for.
    after, lost = drawable(after)
    # Nor was what the scene had already, and a new place or style hides.
    before = Counter([scene.weather, scene.time, *(each for p in scene.paints for each in (p.colour, p.second))])
    return settle(after), tuple(dict.fromkeys([*missing, *(Counter(lost) - before)]))


_Changed = tuple[Scene, Sequence[str]] | None


def _targets(scene: Scene, phrase: str) -> tuple[list[int], list[str]]:
    # The figures that a phrase names: all for a plural, the first for a singular.
    asked = Reader(phrase, 0, is_question=True)
    found, named = find(scene, asked), list[int]()
    missing = list(asked.missing)
    inner = {each.to for each in asked.scene.figures}
    for each in asked.scene.figures:
        if each.id in inner:
            continue
        ids, count = found[each.id], asked.counts[each.id]
        is_all = count < 0 or re.search(r"\b(?:all|every|both|everything)\b", phrase)
        chosen = list(ids) if is_all else list(ids)[: max(count, 1)]
        if len(chosen) < max(count, 1):
            missing.append(phrase[:80])
        named += chosen
    return named, missing


def _names_present(scene: Scene, phrase: str) -> bool:
    # "put the boat on the left" moves a boat that is there.
    first = re.match(r"(?:it|them|everything|the)\b", phrase)
    return bool(first) and (first[0] != "the" or bool(_targets(scene, _head(phrase))[0]))


def _head(phrase: str) -> str:
    return re.split(r"\b(?:on|in|to|under|beside|behind|at|by|near|with)\b", phrase)[0]


def _without(scene: Scene, old: str) -> _Changed:
    named, missing = _targets(scene, old)
    if not named:
        return None
    return _with_only(scene, [f for f in scene.figures if f.id not in named]), missing


def _with_only(scene: Scene, figures: Sequence[Figure]) -> Scene:
    # The id of a figure that is gone is given out again: nothing must refer to it.
    ids = {f.id for f in figures}
    return replace(scene, figures=tuple(f if f.to in ids else replace(f, to=-1, relation="") for f in figures))


def _replaced(scene: Scene, old: str, new: str) -> _Changed:
    named, unknown = _targets(scene, old)
    reader = Reader(new, scene.seed)
    figures = reader.scene.figures
    if not named or not figures:
        return _changed(scene, f"{old} {new}")
    made: list[Figure] = []
    first = next(f for f in scene.figures if f.id in named)
    # "Replace the birds with planes": as many as there were.
    is_each = len({f.kind for f in figures}) == 1 and all(token.what != "count" for token in tokens(new)[0])
    for each in scene.figures:
        if each.id in named:
            wanted = figures[0] if is_each or each.id == first.id else None
            made += [_in_place_of(each, wanted)] if wanted else []
        else:
            made.append(each)
    rest, room = () if is_each else figures[1:], MAX_FIGURES - len(made)
    more = [replace(f, id=_next(scene) + n, to=-1, relation="") for n, f in enumerate(rest[:room])]
    missing = [*unknown, *reader.missing, *(f.kind for f in rest[room:])]
    return _with_only(scene, (*made, *more)), missing


def _in_place_of(old: Figure, new: Figure) -> Figure:
    before, after, spot = kinds()[old.kind], kinds()[new.kind], old.spot
    figure = replace(new, id=old.id, size=new.size or old.size, relation=old.relation, to=old.to)
    if spot is None or ({before.where, after.where} & {"air", "sky", "far", "horizon"} and before.where != after.where):
        return figure  # it stands elsewhere: settled anew
    height = min(spot.height * after.height / before.height, 94 / after.width)
    return replace(figure, spot=replace(spot, height=round(height, 4)))


def _next(scene: Scene) -> int:
    return max((f.id for f in scene.figures), default=-1) + 1


def _added(scene: Scene, new: str) -> _Changed:
    reader = Reader(new, scene.seed, scene.figures)
    figures = reader.scene.figures
    if not figures:
        return _changed(scene, new) if not reader.missing else (scene, reader.missing)
    settings = [(what, getattr(reader.scene, what)) for what in _SETTINGS if getattr(reader.scene, what)]
    missing = [name for what, name in settings if getattr(scene, what) != name]
    return replace(scene, figures=(*scene.figures, *figures)), [*reader.missing, *missing]


# -- changes of what is there --------------------------------------------------------------------------------------------


def _changed(scene: Scene, text: str) -> _Changed:
    found, is_long = tokens(text)
    words = [each for each in found if each.what not in ("filler", "stop", "in", "and", "with")]
    if is_long or not words or any(each.what == "unknown" for each in words):
        return None
    at = next((n for n, each in enumerate(words) if each.what in (*_NOUNS, "it", "all", "ground", "part")), None)
    if at is None or (words[at].what in ("it", "all") and all(each.what in _SETTINGS for each in words[at + 1 :])):
        return _with_settings(scene, [each for each in words if each.what not in ("it", "all")])
    if words[at].what == "ground":
        return _with_ground(scene, [*words[:at], *words[at + 1 :]])
    if words[at].what == "part" or any(each.what == "part" for each in words):
        return _with_part(scene, words)
    if words[at].what == "it" and not scene.figures and scene.place == "plain":
        return _with_ground(scene, words[at + 1 :])
    return _with_figures(scene, words, at)


def _with_settings(scene: Scene, words: Sequence[Token]) -> _Changed:
    if not words or any(each.what not in _SETTINGS for each in words):
        return None
    return _set(scene, words), []


def _set(scene: Scene, settings: Sequence[Token]) -> Scene:
    ground = Paint() if any(each.what == "place" for each in settings) else scene.ground
    return replace(scene, ground=ground, **{each.what: each.name for each in settings})


def _with_ground(scene: Scene, words: Sequence[Token]) -> _Changed:
    settings = [each for each in words if each.what in _SETTINGS]
    if settings:
        return _with_settings(scene, settings) if len(settings) == len(words) else None
    colours = [each.name for each in words if each.what == "colour"]
    pattern = next((each.name for each in words if each.what == "pattern"), "")
    if len(words) != len(colours) + bool(pattern) or not words:
        return None
    old = scene.ground if scene.place == "plain" else Paint()
    ground = _recoloured(old, colours, pattern)
    return replace(scene, place="plain", ground=ground, weather="", time=""), []


def _recoloured(old: Paint, colours: Sequence[str], pattern: str) -> Paint:
    pattern = "vertical stripes" if pattern == "stripes" else pattern or old.pattern
    colour = colours[0] if colours else old.colour
    second = (colours[1] if len(colours) > 1 else old.second if old.second != colour else "") if pattern else ""
    return Paint(colour=colour, second=second, pattern=pattern)


def _with_part(scene: Scene, words: Sequence[Token]) -> _Changed:
    part = next(each.name for each in words if each.what == "part")
    owner = next((each.text for each in words if each.what in _NOUNS), "")
    colours = [each.name for each in words if each.what == "colour"]
    pattern = next((each.name for each in words if each.what == "pattern"), "")
    named = _targets(scene, owner)[0] if owner else [f.id for f in scene.figures]
    named = [f.id for f in scene.figures if f.id in named and part in kinds()[f.kind].parts]
    if not named or not (colours or pattern):
        return None

    def repainted(figure: Figure) -> Figure:
        parts = dict(figure.parts)
        parts[part] = _recoloured(parts.get(part, Paint()), colours, pattern)
        return replace(figure, parts=tuple(parts.items()))

    return replace(scene, figures=tuple(repainted(f) if f.id in named else f for f in scene.figures)), []


def _with_figures(scene: Scene, words: Sequence[Token], at: int) -> _Changed:
    if words[at].what in _NOUNS:
        named, missing = _targets(scene, " ".join(each.text for each in words[: at + 1]))
    else:
        missing = list[str]()
        main = scene.figures[0].kind if scene.figures else ""
        named = [f.id for f in scene.figures if words[at].what == "all" or f.kind == main]
    changes = list(words[at + 1 :])
    if (
        not named
        or missing
        or not changes
        or any(each.what not in ("colour", "pattern", "size", "side", *_SETTINGS) for each in changes)
    ):
        return None
    scene = _set(scene, [each for each in changes if each.what in _SETTINGS])
    colours = [each.name for each in changes if each.what == "colour"]
    if any(not kinds()[f.kind].colours for f in scene.figures if f.id in named) and colours:
        return None
    return replace(
        scene, figures=tuple(_altered(f, changes, colours, scene.place) if f.id in named else f for f in scene.figures)
    ), []


def _altered(figure: Figure, changes: Sequence[Token], colours: Sequence[str], place: str) -> Figure:
    pattern = next((each.name for each in changes if each.what == "pattern"), "")
    if colours or pattern:
        figure = replace(figure, paint=_recoloured(figure.paint, colours, pattern))
    for each in changes:
        spot, width = figure.spot, kinds()[figure.kind].width
        assert spot is not None
        if each.what == "size":
            name = {"big": "huge", "small": "tiny"}.get(each.name, each.name) if figure.size == each.name else each.name
            height = min(spot.height * SIZES[name] / SIZES[figure.size], 0.94, 94 / width)
            figure = replace(figure, size=name, spot=replace(spot, height=round(height, 4)))
        elif each.what == "side" and each.name in SIDES:
            spot = replace(spot, x=sum(SIDES[each.name]) / 2)
            figure = replace(figure, side=each.name, spot=spot)
        elif each.what == "side":
            figure = replace(figure, side=each.name, spot=_moved(spot, kinds()[figure.kind], each.name, place))
    return figure


def _moved(spot: Spot, kind: Kind, side: str, place: str) -> Spot:
    far = {"far": 0.3, "near": 0.0}.get(side, spot.far)
    # A figure is smaller the farther away it is, as where `layout` sets it.
    height = spot.height if far == spot.far else min(spot.height * (1 - far) / (1 - spot.far), 0.9, 94 / kind.width)
    y = {"top": height + 0.05, "far": min(max(HORIZON[place] + 0.06, height + 0.03), 0.95)}.get(side, 0.95)
    if spot.floats and side in ("far", "near"):
        y = spot.y  # a bird stays in the air
    return replace(spot, y=round(y, 4), height=round(height, 4), far=far)
