"""Draws units by seed."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, combinations, product, zip_longest
from typing import get_args

from openmaia.offline.scene_units.terms import Phrase, Term, Wordless
from openmaia.offline.scene_units.unit import Grade, Mode, SceneUnit
from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.captions import PLACE_PHRASES, TIME_PHRASES
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import PLACES
from openmaia.offline.scenes.words import PATTERNS, members, plural

SCENE_EDITION = "openmaia scene units 1"
"""Part of all hashes. A new edition gives other units."""

_TIMES, _WEATHERS = ("morning", "dusk", "night"), ("cloudy", "rain", "storm", "snowfall", "fog")
_STYLES = ("outlined", "pencil drawing", "night vision", "greyscale", "pixelated", "blurred")
# The share of the words, and of the other truths, that is in `held_out` alone.
_HELD_WORDS, _HELD_TRUTHS = 0.25, 0.5

Combination = tuple[Term, ...]


def layers(
    half: str, count: int, seed: int, noise: float, without: Sequence[str] = ()
) -> Mapping[str, tuple[SceneUnit, ...]]:
    """Returns at most `count` units of each mode. The target has one layer for each mode.

    Args:
        without: Words whose units are in the layer `outside`, in both halves.
    """
    spoken: dict[Mode, list[Combination]] = {mode: [] for mode in get_args(Mode)}
    for mode, several in spoken.items():
        for terms in truths(mode):
            is_silent = any(word in without for term in terms for word in term.words)
            if is_silent and mode == "one" and terms[0].sort != "count":
                spoken["outside"].append(terms)
            elif not is_silent and half_of(mode, terms) == half:
                several.append(terms)
    return {
        mode: tuple(_unit(mode, terms, seed, noise) for terms in _chosen(several, count, f"{seed}"))
        for mode, several in spoken.items()
    }


def half_of(mode: Mode, terms: Combination) -> str:
    """Returns `tuning` or `held_out`."""
    is_held = any(share("word", word) < _HELD_WORDS for term in terms for word in term.words)
    return "held_out" if is_held or share("truth", mode, *_texts(terms)) < _HELD_TRUTHS else "tuning"


def share(*key: str) -> float:
    """Returns a pseudo-random number, uniformly distributed between 0 and 1. Equal arguments give the same number."""
    return int.from_bytes(hashlib.sha256("\0".join((SCENE_EDITION, *key)).encode()).digest()[:6]) / 2**48


@cache
def truths(mode: Mode) -> Sequence[Combination]:
    """Returns the terms of all units of a mode that there can be."""
    match mode:
        case "one":
            return [(each,) for each in _singles()]
        case "pair":
            return [(each,) for each in _pairs()]
        case "or":
            mixed = [
                each for each in _singles() if each.sort in ("kind", "group", "colour", "pattern", "place", "time")
            ]
            return [each for each in combinations(mixed, 2) if not _related(*each)]
        case "and":
            return [each for each in combinations(_objects(), 2) if not _related(*each)]
        case "andnot":
            first = [each for each in _singles() if each.sort in ("kind", "group", "place")]
            second = [each for each in _singles() if each.sort in ("group", "time")]
            return [(one, other) for one, other in product(first, second) if not _related(one, other)]
        case "outside":
            bands = [("x", n) for n in (8, 10, 12, 14, 16)] + [("y", n) for n in (16, 18, 20, 22, 24)]
            bands += [("height", n) for n in (36, 40, 44, 48, 52)]
            return [
                (Wordless(quantity="number"),),
                *((Wordless(quantity=quantity, bands=number),) for quantity, number in bands),  # type: ignore[arg-type]
            ]


def _groups() -> list[str]:
    return list(dict.fromkeys(wider for kind in kinds().values() for wider in kind.wider if wider not in kinds()))


def _single(sort: str, names: Sequence[str]) -> list[Phrase]:
    return [Phrase(text=each, sort=sort, words=(each,)) for each in names]


def _objects() -> list[Phrase]:
    return [*_single("kind", list(kinds())), *_single("group", _groups())]


def _singles() -> Iterator[Phrase]:
    yield from _objects()
    yield from _single("colour", list(COLOURS))
    yield from _single("pattern", PATTERNS)
    # The sky is part of all places outdoors.
    yield from _single("place", [each for each in PLACES if each != "sky"])
    yield from chain(_single("time", _TIMES), _single("weather", _WEATHERS), _single("style", _STYLES))
    for number, name in product(("two", "three"), (*kinds(), *_groups())):
        yield Phrase(text=f"{number} {plural(name)}", sort="count", words=(number, name))


def _pairs() -> Iterator[Phrase]:
    colours = [
        *((name, kind.colours) for name, kind in kinds().items()),
        *((name, tuple(COLOURS)) for name in _groups()),
    ]
    for name, some in colours:
        yield from (Phrase(text=f"{each} {name}", sort="coloured", words=(each, name)) for each in some)
    for name, time in product(_earthly(), _TIMES):
        yield Phrase(text=f"{name}{TIME_PHRASES[time]}", sort="timed", words=(name, time))
    for name in _earthly():
        homes = {place for member in members(name) for place in kinds()[member].homes} - {"sky"}
        yield from (
            Phrase(text=f"{name} {PLACE_PHRASES[each]}", sort="placed", words=(name, each))
            for each in PLACES
            if each in homes
        )


def _earthly() -> list[str]:
    # Sun, moon and stars decide the time themselves.
    return [each for each in (*kinds(), *_groups()) if any(kinds()[one].where != "sky" for one in members(each))]


def _related(one: Phrase, other: Phrase) -> bool:
    return (
        one.sort in ("kind", "group")
        and other.sort in ("kind", "group")
        and bool(set(members(one.text)) & set(members(other.text)))
    )


def _texts(terms: Combination) -> list[str]:
    return [each.text for each in terms]


def _chosen(candidates: Sequence[Combination], count: int, seed: str) -> list[Combination]:
    # The sorts of terms take turns, because there are far more kinds than times.
    by_sort: defaultdict[tuple[str, ...], list[Combination]] = defaultdict(list)
    for each in sorted(candidates, key=lambda terms: share("order", seed, *_texts(terms))):
        by_sort[tuple(term.sort for term in each)].append(each)
    return [each for turn in zip_longest(*by_sort.values()) for each in turn if each][:count]


def _unit(mode: Mode, terms: Combination, seed: int, noise: float) -> SceneUnit:
    key = (f"{seed}", mode, *_texts(terms))
    grades: tuple[Grade, ...] = get_args(Grade)
    return SceneUnit(
        mode=mode,
        terms=terms,
        grade=grades[int(len(grades) * share("grade", *key))],
        exponent=0.6 + 0.8 * share("exponent", *key),
        gain=2.0 ** (6 * share("gain", *key) - 3),
        noise=noise,
    )
