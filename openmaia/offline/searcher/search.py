"""What a search tries next, and what it concludes from the activations."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random

import numpy as np
import numpy.typing as npt

from openmaia.offline.scenes.words import members
from openmaia.offline.searcher.labels import combined, shown, shows, single, terms
from openmaia.offline.searcher.pairs import Pair, draw_pairs, draw_scene, prompt
from openmaia.offline.searcher.transcript import SeenExemplar

# Images of the screening. They are the same for all units, so that each is drawn once.
_SCREENED = 384
# Single labels that are tested on matched pairs: the best of the screening, and of the exemplars.
_SCREEN_BEST, _EXEMPLAR_BEST = 9, 5
# Labels of which combinations are tested, and combinations, at most.
_COMBINED, _COMBINATIONS = 6, 8
# Pairs of images for each label.
_PAIRS = 12
# Labels whose images are edited, and images for each.
_EDITED, _EDITS = 3, 8
# The smallest score of a label that is claimed, in SD of the screening, and in standard errors.
_LEAST, _SURE = 0.4, 2.0
# Standard errors by which a combination has to beat the best single label.
_CLEARLY = 2.5
# The share of top exemplars that must show a label.
_SHOWN = 0.5
# A wider word, and a second label, have at least these shares of the best score.
_WIDER, _SECOND = 0.8, 0.75
# By so much more of the top exemplars two labels have to be shown than one.
_MORE = 0.15

Activations = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How much a label excites a unit, in SD of the screening."""

    value: float
    """By how much above matched twins and above random scenes, the smaller one."""
    error: float

    @property
    def is_clear(self) -> bool:
        return self.value >= max(_LEAST, _SURE * self.error)


Scores = Mapping[str, Score]


@cache
def screening() -> tuple[str, ...]:
    """Returns prompts of random scenes, in which all labels of one word occur independently of one another."""
    stream = Random("screening")
    return tuple(prompt(draw_scene(stream, patterned=0.35, plain=0.12)) for _ in range(_SCREENED))


@cache
def pairs(label: str) -> tuple[Pair, ...]:
    """Returns the pairs that test a label. They are the same for all units."""
    return tuple(islice(draw_pairs(label, Random(f"pairs of {label}")), _PAIRS))


def prompts(labels: Sequence[str]) -> list[str]:
    """Returns the prompts of the pairs of some labels."""
    return [text for label in labels for each in pairs(label) for text in (each.positive, each.neutral)]


def candidates(screened: Sequence[float], exemplars: Sequence[SeenExemplar]) -> list[str]:
    """Returns single labels for a test on pairs: those of the exemplars, then those of the screening, best first."""
    found = enriched(exemplars)
    listed = sorted(found, key=lambda each: (-found[each], each))[:_EXEMPLAR_BEST]
    effects = _screened(np.array(screened))
    listed += sorted(effects, key=lambda each: (-effects[each], each))[:_SCREEN_BEST]
    return [each for each in dict.fromkeys(listed) if pairs(each)]


def _screened(values: Activations) -> dict[str, float]:
    # Welch's t of the images that show a label and of those that do not.
    found: dict[str, float] = {}
    has = [shown(each) for each in screening()]
    for label in single():
        inside = np.array([label in each for each in has])
        own, rest = values[inside], values[~inside]
        if min(len(own), len(rest)) >= 4:
            error = np.sqrt(own.var() / len(own) + rest.var() / len(rest)) + 1e-9
            found[label] = float((own.mean() - rest.mean()) / error)
    return found


def enriched(exemplars: Sequence[SeenExemplar]) -> dict[str, float]:
    """Returns by how much more often the top exemplars show a label than random ones. The part where the unit responds
    counts as much as the whole."""
    top, random = ([each for each in exemplars if each.kind == kind] for kind in ("top", "random"))
    found: dict[str, float] = {}
    for label in single() if top and random else ():
        whole = _share(label, [each.whole for each in top]) - _share(label, [each.whole for each in random])
        part = float(np.mean([label in shown(each.part or each.whole) for each in top]))
        if whole > 0:
            found[label] = (whole + part) / 2
    return found


def _share(label: str, sentences: Sequence[str]) -> float:
    return float(np.mean([label in shown(each) for each in sentences]))


def scores(labels: Sequence[str], values: Sequence[float], screened: Sequence[float]) -> Scores:
    """Returns the score of each label, from the activations of `prompts(labels)`."""
    every = np.array(screened)
    rest = iter(values)
    return {label: _score(np.array(list(islice(rest, 2 * len(pairs(label))))), every) for label in labels}


def _score(values: Activations, screened: Activations) -> Score:
    own, twins, sd = values[0::2], values[1::2], screened.std() + 1e-9
    value = min(own.mean() - twins.mean(), own.mean() - screened.mean())
    return Score(value=float(value / sd), error=float(np.sqrt((own.var() + twins.var()) / len(own)) / sd))


def best(found: Scores) -> list[str]:
    """Returns labels, the best first."""
    return sorted(found, key=lambda each: (-found[each].value, each))


def combinations(found: Scores, exemplars: Sequence[SeenExemplar]) -> list[str]:
    """Returns combinations of two words for a test: of the best single labels, and of those that the exemplars show."""
    words = [each for each in best(found) if found[each].value > 0][:_COMBINED]
    made = [combined(first, second) for n, first in enumerate(words) for second in words[n + 1 :]]
    top = [each.whole for each in exemplars if each.kind == "top"]
    made += [
        text
        for first in words[:2]
        for second in single()
        if (text := combined(first, second)) and top and np.mean([shows(each, text) for each in top]) >= _SHOWN
    ]
    return [each for each in dict.fromkeys(made) if each and pairs(each)][:_COMBINATIONS]


def edits(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Returns prompts, and the instructions that remove a label from their images."""
    return [(each.positive, each.removal) for label in labels for each in pairs(label)[:_EDITS]]


def falls(labels: Sequence[str], values: Sequence[float], screened: Sequence[float]) -> Scores:
    """Returns how far the activation falls where a label is removed, from those of the images before and after."""
    rest, sd = iter(values), np.array(screened).std() + 1e-9
    found: dict[str, Score] = {}
    for label in labels:
        change = np.array(list(islice(rest, 2 * len(edits([label])))))
        drop = (change[0::2] - change[1::2]) / sd
        found[label] = Score(value=float(drop.mean()), error=float(drop.std() / np.sqrt(len(drop))))
    return found


def plain_choice(one: Scores, two: Scores) -> list[str]:
    """Returns the best single label, or a combination that beats it clearly."""
    return [_beaten(best(one)[0], one, two)]


def _beaten(first: str, one: Scores, two: Scores) -> str:
    safe = {each: two[each].value - _CLEARLY * two[each].error for each in two}
    pair = max(safe, key=lambda each: safe[each], default="")
    return pair if pair and safe[pair] > one[first].value else first


def shortlist(one: Scores, two: Scores, exemplars: Sequence[SeenExemplar]) -> list[str]:
    """Returns labels that may be claimed, the best first: clear ones that the exemplars show."""
    sentences = [each.whole for each in exemplars if each.kind == "top"]
    clear = [each for each in best(one) if one[each].is_clear and _is_shown([each], sentences)]
    if not clear:
        return []
    pair = _beaten(clear[0], one, {each: score for each, score in two.items() if _is_shown([each], sentences)})
    return list(dict.fromkeys([pair, *clear]))[:_EDITED]


def _is_shown(labels: Collection[str], sentences: Sequence[str]) -> bool:
    return not sentences or shown_share(labels, sentences) >= _SHOWN


def shown_share(labels: Collection[str], sentences: Sequence[str]) -> float:
    """Returns the share of pictures that show one of the labels, according to sentences about them."""
    return float(np.mean([any(shows(each, label) for label in labels) for each in sentences])) if sentences else 0.0


def choice(kept: Sequence[str], one: Scores, fell: Scores, exemplars: Sequence[SeenExemplar]) -> list[str]:
    """Returns the labels of the answer: the first that holds after its removal, a wider word for it, or two labels."""
    left = [each for each in kept if each not in fell or fell[each].value > fell[each].error]
    if not left:
        return []
    first = left[0]
    if first not in one:
        return [first]
    wider = [each for each in left if first != each and first in members(each)]
    if wider and one[wider[0]].value >= _WIDER * one[first].value:
        return [wider[0]]
    sentences = [each.whole for each in exemplars if each.kind == "top"]
    alone = shown_share([first], sentences)
    for other in _alike(first, one):
        if shown_share([first, other], sentences) >= alone + _MORE:
            return [first, other]
    return [first]


def _alike(first: str, one: Scores) -> Iterator[str]:
    # Labels of the same kind of word that excite the unit as much, and have nothing in common with the first.
    for each in best(one):
        is_alike = single()[each] == single()[first] and not terms(each) & terms(first)
        if each != first and is_alike and one[each].is_clear and one[each].value >= _SECOND * one[first].value:
            yield each
