"""Answers of more than one word: two words, a count, two objects together, the pattern of a background. What is tried, and what
makes each frequent."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, product
from random import Random

import numpy as np
import numpy.typing as npt

from openmaia.offline.scenes.album import LIGHTS
from openmaia.offline.scenes.captions import PATTERN_WORDS
from openmaia.offline.scenes.grammar import tokens
from openmaia.offline.scenes.graph import Figure, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import INDOORS
from openmaia.offline.scenes.words import SCENERY, STRIPES, plural
from openmaia.offline.searcher.labels import combined, narrower, scene_of, single
from openmaia.offline.searcher.pairs import draw_paint, draw_scene, fitted

_COUNTS = {2: "two", 3: "three"}
# How many there are of each kind of a crowd: ten figures, of which most stay visible.
_CROWD = (1, 1, 1, 1, 1, 2, 3)
_BACKGROUND = " background"
# A compound is tried if so many images of the search show it.
_FEW = 2


def draw_crowd(stream: Random, without: Collection[str] = ()) -> Scene:
    """Returns a random scene of seven kinds, of which one comes twice and one three times. Each image shows many compounds."""
    return crowded(replace(draw_scene(stream, without), style="flat", figures=()), _CROWD, stream, without)


def crowded(scene: Scene, numbers: Sequence[int], stream: Random, without: Collection[str] = ()) -> Scene:
    """Returns a scene with so many figures of each of some random further kinds, as many as there are `numbers`."""
    taken = {each.kind for each in scene.figures}
    known = [each for each in kinds() if each not in without and each not in taken]
    chosen = stream.sample(known, len(numbers))
    lights = [each for each in (*taken, *chosen) if each in LIGHTS]
    figures = list(scene.figures)
    for kind, number in zip(chosen, numbers, strict=True):
        # There is one light, which decides the time.
        if kind not in lights[1:]:
            look = draw_paint(kind, stream, without, 0.1)
            several = 1 if kind in LIGHTS else number
            figures += [Figure(id=len(figures) + n, kind=kind, paint=look) for n in range(several)]
    return fitted(replace(scene, figures=tuple(figures), time=LIGHTS[lights[0]] if lights else scene.time))


def is_background(label: str) -> bool:
    """Returns whether a label is that of a patterned background, such as "dotted background"."""
    return label.endswith(_BACKGROUND)


@lru_cache(4096)
def compounds(sentence: str) -> frozenset[str]:
    """Returns the labels of more than one word that hold of a picture according to a sentence."""
    scene = scene_of(sentence)
    nouns = {each: (each, *kinds()[each].wider) for each in {figure.kind for figure in scene.figures}}
    every = dict.fromkeys(noun for several in nouns.values() for noun in several)
    settings = [each for each in (scene.time, scene.place) if each in single()]
    return frozenset((
        *_counts(scene),
        *_together([*every, *scenery(scene)]),
        *_background(scene),
        *(label for figure in scene.figures for label in _painted(figure, nouns[figure.kind])),
        *(label for noun, each in product([*every, *settings], settings) if (label := combined(noun, each))),
    ))  # fmt: skip


def _counts(scene: Scene) -> Iterator[str]:
    found = Counter(noun for each in scene.figures for noun in (each.kind, *kinds()[each.kind].wider))
    yield from (f"{_COUNTS[number]} {plural(noun)}" for noun, number in found.items() if number in _COUNTS)


def _together(nouns: Sequence[str]) -> Iterator[str]:
    for one, other in combinations(sorted(set(nouns)), 2):
        if not set(narrower(one)) & set(narrower(other)):
            yield f"{one} and {other}"


def scenery(scene: Scene) -> Iterator[str]:
    """Yields the kinds of what places, weather and night show without a figure."""
    outside = () if scene.place in INDOORS else (scene.weather, scene.time if scene.weather == "clear" else "")
    yield from (noun for each in (scene.place, *outside) for noun in SCENERY.get(each, ()))


def _background(scene: Scene) -> Iterator[str]:
    if scene.place == "plain" and (pattern := scene.ground.pattern):
        yield PATTERN_WORDS.get(pattern, pattern) + _BACKGROUND
        if pattern in STRIPES:
            yield "striped" + _BACKGROUND


def _painted(figure: Figure, nouns: Sequence[str]) -> Iterator[str]:
    words = (figure.paint.colour, figure.paint.second, figure.paint.pattern)
    for word, noun in product((each for each in words if each), nouns):
        if label := combined(noun, word):
            yield label
    if figure.paint.pattern and figure.paint.colour:
        yield combined(figure.paint.colour, figure.paint.pattern)


def likely(
    measured: Mapping[str, float], exemplars: tuple[Sequence[str], Sequence[str]], without: Collection[str]
) -> list[str]:
    """Returns compounds, the likeliest first: by their correlation with the activations of images by their prompts, and by how
    much more often the top exemplars show them than random ones do, both as sentences (`exemplars`)."""
    fits = _correlations([compounds(each) for each in measured], np.array([*measured.values()]))
    top, random = (Counter(label for each in some for label in compounds(each)) for some in exemplars)
    share = {label: top[label] / len(exemplars[0]) - random[label] / max(len(exemplars[1]), 1) for label in top}
    found = {label: fits.get(label, 0.0) + max(share.get(label, 0.0), 0.0) for label in {*fits, *share}}
    return [each for each in sorted(found, key=lambda each: (-found[each], each)) if is_sayable(each, without)]


def is_sayable(label: str, without: Collection[str]) -> bool:
    """Returns whether a label has none of some words."""
    return not {each.name for each in tokens(label)[0]} & {*without}


def _correlations(shown: Sequence[Collection[str]], values: npt.NDArray[np.float64]) -> dict[str, float]:
    if not len(values) or not values.std():
        return {}
    heights = (values - values.mean()) / values.std()
    sums, numbers = Counter[str](), Counter[str]()
    for labels, height in zip(shown, heights, strict=True):
        for label in labels:
            sums[label] += height
            numbers[label] += 1
    every = len(values)
    return {
        label: float(sums[label] / np.sqrt(number * (every - number)))
        for label, number in numbers.items()
        if _FEW <= number < every
    }
