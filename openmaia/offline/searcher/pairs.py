"""Random scenes that show a label, each with a twin that differs by the label alone, and prompts for both."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from openmaia.offline.scenes.album import LIGHTS, STYLES, WEATHERS
from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.captions import describe
from openmaia.offline.scenes.grammar import MAX_FIGURES, Reader, read, tokens
from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import INDOORS, PLACES, TIMELESS, settle
from openmaia.offline.scenes.truth import holds
from openmaia.offline.scenes.words import PATTERNS, STRIPES
from openmaia.offline.searcher.labels import EXCEPT, ask, narrower, scene_of, single, terms

TIMES = ("day", "morning", "dusk", "night")
_SIZES = ("tiny", "small", "big", "huge")
# Random scenes that are tried for one pair.
_DRAWS = 30
# A twin shows a kind that stands in the same way, unless these are so few.
_FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The prompt of a scene that shows a label, and of one without it."""

    positive: str
    neutral: str
    part: str
    """What differs: `kind`, `colour`, `pattern`, `place`, …"""
    removal: str
    """An instruction that turns the first scene into one without the label."""


def draw_pairs(
    label: str, stream: Random, avoid: Collection[str] = (), without: Collection[str] = ()
) -> Iterator[Pair]:
    """Yields random pairs without end, whose scenes show nothing of `avoid` (`labels.terms`) but the label, and nothing of
    `without`.

    None if the grammar does not know all words of the label, or prompts of random scenes cannot say it.
    """
    base, _, excepted = label.partition(EXCEPT)
    asked, exception = ask(base), exception_named(excepted, without)
    if asked.missing or terms(base) <= {*without} or (excepted and not exception):
        return
    avoided = {*avoid, *terms(label), *without}
    while True:
        drawn = (_pair(asked, stream, avoided, without) for _ in range(_DRAWS))
        if exception:
            drawn = (each and _excepted(each, exception, stream, avoided, without) for each in drawn)
        found = next((each for each in drawn if each and _is_right(each, label)), None)
        if found is None:
            return
        yield found


def exception_named(text: str, without: Collection[str] = ()) -> str:
    """Returns the kind of object, the word for several kinds or the time of day that a text names, if it names nothing else and
    scenes can be drawn with and without it. Otherwise empty."""
    named = [each.name for each in tokens(text)[0] if each.what != "filler"]
    name = named[0] if len(named) == 1 else ""
    can_be = single().get(name) in ("kind", "group", "time") and not {*narrower(name)} <= {*without}
    return name if can_be else ""


def _excepted(pair: Pair, exception: str, stream: Random, avoid: Collection[str], without: Collection[str]) -> Pair:
    # Every second twin shows the exception, too.
    if stream.random() < 0.5:
        return pair
    scene = scene_of(pair.positive)
    if single()[exception] == "time":
        changed, removal = replace(scene, time=exception), f"at {exception}"
    else:
        kind = _other(narrower(exception), without, stream)
        more = Figure(id=len(scene.figures), kind=kind, paint=draw_paint(kind, stream, avoid, 0.0))
        time = LIGHTS.get(kind, scene.time)
        changed, removal = replace(scene, figures=(*scene.figures, more), time=time), f"add a {kind}"
    return replace(pair, neutral=prompt(fitted(changed)), part="exception", removal=removal)


def prompt(scene: Scene) -> str:
    """Returns the words of a scene whose place and time are chosen."""
    return f"{describe(scene)} by day" if scene.time == "day" and scene.place not in TIMELESS else describe(scene)


def draw_scene(stream: Random, avoid: Collection[str] = (), *, patterned: float = 0.15, plain: float = 0.0) -> Scene:
    """Returns a random scene of up to three figures. Everything is chosen but where they stand.

    Kinds and places are independent of one another, other than in the pictures `scenes`. `patterned` figures have a
    pattern, and `plain` scenes have a ground of one colour or pattern as their place, as shares of all.
    """
    weather = stream.choice(WEATHERS) if stream.random() < 0.2 else "clear"
    style = stream.choice(STYLES) if stream.random() < 0.08 else "flat"
    scene = Scene(place=_other(PLACES, avoid, stream), time=_other(TIMES, avoid, stream), weather=weather, style=style)
    scene = replace(scene, weather="clear" if weather in avoid else weather, style="flat" if style in avoid else style)
    figures: list[Figure] = []
    for number in range(stream.choice((1, 2, 2, 3))):
        kind = _other([name for name, each in kinds().items() if each.where != "sky"], avoid, stream)
        if all(kind != each.kind for each in figures):
            figures.append(Figure(id=number, kind=kind, paint=draw_paint(kind, stream, avoid, patterned)))
    if stream.random() < plain:
        pattern = _other(("", *PATTERNS), avoid, stream)
        scene = replace(scene, place="plain", ground=_full(Paint(pattern=pattern), stream, avoid))
    return fitted(replace(scene, figures=tuple(figures)))


def draw_paint(kind: str, stream: Random, avoid: Collection[str], patterned: float) -> Paint:
    """Returns a random look of a kind, with a pattern in the share `patterned` of cases. Empty if its colours are its own."""
    if not kinds()[kind].colours:
        return Paint()
    colour = _other(list(COLOURS), avoid, stream)
    if stream.random() >= patterned:
        return Paint(colour=colour)
    return Paint(
        colour=colour, pattern=_other(PATTERNS, avoid, stream), second=_other(list(COLOURS), {*avoid, colour}, stream)
    )


def _other(choices: Sequence[str], avoid: Collection[str], stream: Random) -> str:
    # Any of them if all are to be avoided: the pair is then found wrong.
    return stream.choice([each for each in choices if each not in avoid] or list(choices))


def fitted(scene: Scene) -> Scene:
    """Returns a scene without what its place cannot have: no weather indoors, no time in outer space."""
    scene = replace(scene, weather="clear") if scene.place in INDOORS else scene
    return replace(scene, time="day") if scene.place in TIMELESS else scene


def _pair(asked: Reader, stream: Random, avoid: Collection[str], without: Collection[str]) -> Pair | None:
    shown, wanted = draw_scene(stream, avoid), asked.scene
    figures = [each for figure in wanted.figures for each in _figures(figure, asked, stream, avoid, without)]
    is_ground = wanted.place == "plain" and (not asked.names_paint or stream.random() < 0.25)
    if asked.names_paint and not is_ground:
        figures = [_carrier(wanted.ground, stream, avoid)]
    rest = [each for each in shown.figures if each.kind not in {f.kind for f in figures}]
    rest = rest[: stream.choice((0, 1, 1))] if figures else rest
    numbered = tuple(replace(each, id=n + len(figures)) for n, each in enumerate(rest))
    shown = replace(shown, figures=(*figures, *numbered), **_settings(wanted, is_ground=is_ground))
    if is_ground:
        shown = replace(shown, place="plain", ground=_full(wanted.ground, stream, avoid))
    lights = [LIGHTS[each.kind] for each in figures if each.kind in LIGHTS]
    shown = replace(shown, time=lights[0]) if lights and not wanted.time else shown
    parts = list(_parts(asked, figures, is_ground=is_ground))
    if not parts or len(figures) > MAX_FIGURES:
        return None
    part, number = stream.choice(parts)
    changed, removal = _changed(shown, part, number, len(figures), stream, avoid)
    return Pair(positive=prompt(fitted(shown)), neutral=prompt(fitted(changed)), part=part, removal=removal)


def _settings(wanted: Scene, *, is_ground: bool) -> dict[str, str]:
    named = {what: getattr(wanted, what) for what in ("place", "time", "weather", "style")}
    return {what: name for what, name in named.items() if name and (name != "plain" or is_ground)}


def _figures(
    asked: Figure, reader: Reader, stream: Random, avoid: Collection[str], without: Collection[str]
) -> list[Figure]:
    kind = _other(narrower(asked.kind), without, stream)
    plain = draw_paint(kind, stream, avoid, 0.0)
    look = replace(asked.paint, colour=asked.paint.colour or plain.colour)
    look = _full(look, stream, avoid) if look.pattern else look
    figure = replace(asked, kind=kind, paint=look, size=asked.size or stream.choice(("", "", "big")))
    number = reader.counts[asked.id]
    return [figure] * (number if number > 0 else 3 if number < 0 else 1)


def _full(paint: Paint, stream: Random, avoid: Collection[str]) -> Paint:
    # A paint with what the label leaves open.
    pattern = stream.choice(STRIPES) if paint.pattern == "stripes" else paint.pattern
    colour = paint.colour or _other(list(COLOURS), avoid, stream)
    second = paint.second or (_other(list(COLOURS), {*avoid, colour}, stream) if pattern else "")
    return Paint(colour=colour, second=second, pattern=pattern)


def _carrier(paint: Paint, stream: Random, avoid: Collection[str]) -> Figure:
    solid = [name for name, each in kinds().items() if each.colours and each.where != "sky"]
    return Figure(
        id=0,
        kind=_other(solid, avoid, stream),
        paint=_full(paint, stream, avoid),
        size=stream.choice(("", "big", "big")),
    )


def _parts(asked: Reader, figures: Sequence[Figure], *, is_ground: bool) -> Iterator[tuple[str, int]]:
    # What a twin can lack, and the number of the figure that has it.
    wanted = asked.scene
    if asked.names_paint or is_ground:
        number = -1 if is_ground else 0
        yield from ((what, number) for what in ("colour", "pattern") if getattr(wanted.ground, what))
    yield from ((what, -1) for what in _settings(wanted, is_ground=False))
    at = 0
    for figure in wanted.figures:
        yield "kind", at
        yield from ((what, at) for what in ("colour", "pattern") if getattr(figure.paint, what))
        if figure.size:
            yield "size", at
        count = asked.counts[figure.id]
        if count > 1 or count < 0:
            yield "count", at
        at += sum(each.id == figure.id for each in figures)


def _changed(scene: Scene, part: str, at: int, own: int, stream: Random, avoid: Collection[str]) -> tuple[Scene, str]:
    if part in ("place", "time", "weather", "style"):
        return _elsewhere(scene, part, stream, avoid)
    if at < 0:
        ground = _repainted(scene.ground, part, stream, avoid)
        return replace(scene, ground=ground), f"make the background {ground.pattern or ground.colour}"
    old = scene.figures[at]
    if part == "count":
        alone = tuple(each for n, each in enumerate(scene.figures) if n >= own or each.id != old.id or n == at)
        return replace(scene, figures=alone), f"remove the {old.kind}"
    if part == "kind":
        taken = {*avoid, *(each.kind for each in scene.figures)}
        others = [name for name, each in kinds().items() if each.where != "sky" and each.colours and name not in taken]
        alike = [each for each in others if kinds()[each].where == kinds()[old.kind].where]
        choices = alike if len(alike) > _FEW else others
        colour = old.paint.colour or ("white" if "white" not in avoid else _other(list(COLOURS), avoid, stream))
        new = replace(old, kind=stream.choice(choices), paint=replace(old.paint, colour=colour))
        removal = f"remove the {old.kind}"
    elif part == "size":
        new = replace(old, size=_SIZES[3 - _SIZES.index(old.size)])
        removal = f"make the {old.kind} {new.size}"
    else:
        new = replace(old, paint=_repainted(old.paint, part, stream, avoid))
        removal = f"make the {old.kind} {getattr(new.paint, part)}"
    figures = tuple(replace(new, id=f.id) if n < own and f.id == old.id else f for n, f in enumerate(scene.figures))
    return replace(scene, figures=figures), removal


def _repainted(paint: Paint, part: str, stream: Random, avoid: Collection[str]) -> Paint:
    if part == "pattern":
        return replace(paint, pattern=_other(PATTERNS, avoid, stream))
    return replace(paint, colour=_other(list(COLOURS), {*avoid, paint.second}, stream))


def _elsewhere(scene: Scene, part: str, stream: Random, avoid: Collection[str]) -> tuple[Scene, str]:
    choices = {
        "place": PLACES,
        "time": TIMES,
        "weather": ("clear", "clear", *WEATHERS),
        "style": ("flat", "flat", *STYLES),
    }
    name = _other(choices[part], avoid, stream)
    changed = replace(scene, **{part: name})
    return changed, {"place": f"show the {name}", "time": f"at {name}"}.get(part, name)


def _is_right(pair: Pair, label: str) -> bool:
    shown, other = (settle(read(text, 0)[0]) for text in (pair.positive, pair.neutral))
    return holds(shown, label) is True and holds(other, label) is False and pair.positive != pair.neutral
