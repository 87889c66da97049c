"""What a search tries next, and what it concludes from the activations."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random

import numpy as np

from openmaia.core.images import Mask
from openmaia.offline.searcher.compounds import crowded, draw_crowd, is_background, likely
from openmaia.offline.searcher.either import either
from openmaia.offline.searcher.exceptions import Activations, exceptions
from openmaia.offline.searcher.findings import ToldExemplar
from openmaia.offline.searcher.labels import EXCEPT, narrower, sayable, scene_of, shown, shows, single, terms
from openmaia.offline.searcher.pairs import Pair, draw_pairs, draw_scene, prompt

# Images of the screening, and crowds. They are the same for all units, so that each is drawn once.
_SCREENED, _CROWDS = 400, 240
# Images of the best single label among random others, and the numbers of these.
_ACCOMPANIED, _COMPANY = 60, (1, 1, 1, 1)
# Single labels that are tested on matched pairs, and compounds.
_SINGLE, _COMPOUNDS = 18, 8
# Single labels where the bank has named some.
_SINGLE_WITH_BANK = 10
# Pairs of images for each label.
_PAIRS = 14
# Images of each label of the answer that are edited, and answers of which they are.
_EDITS, _SHORTLIST = 6, 3
# The smallest score of a label that is claimed, in SD of the screening, and in standard errors.
_LEAST, _SURE = 0.5, 2.5
# Standard errors by which a combination has to beat the best single label.
_CLEARLY = 2.5
# The share of top exemplars that show a label: for a test, for an answer, and for one that comes before others. For an answer
# it must be so much above that of random exemplars.
_SEEN, _SHOWN, _OFTEN, _MORE = 0.2, 0.33, 0.5, 0.25
# A wider label has at least this share of a narrower one's score, and holds of so many of its scenes.
_WIDER, _INCLUDED = 0.8, 0.8
# By so much, in SD, two labels have to score above one, unless the weaker one surely has this share of the other one's score.
_SECOND, _EVEN = 0.15, 0.5
# A compound that the exemplars do not show, as a viewer overlooks much in a crowd: its smallest score, in SD of the screening,
# and how many times that of the best single label it is.
_OVERWHELMING, _TIMES = 3.0, 2.0
# A compound has this many times the score of the best single label. Half of its scenes excite a unit for that label, too.
_BETTER = 1.5
# A patterned background has this many times the score of the pattern on objects. A unit that the pattern excites wherever it is
# responds to objects less than to backgrounds, because they are smaller.
_AROUND = 3.0
# With fewer telling exemplars, a kind that they do not show may be claimed: a viewer overlooks many in a crowd.
_TELLING = 5
# Welch's t of a label that is tested though no exemplars show it.
_STRIKING = 3.0
# An exception takes away at least this share of the activation.
_LOST = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How much a label excites a unit, in SD of the screening."""

    value: float
    """By how much above matched twins and above random scenes, the smaller one."""
    error: float
    on_objects: float
    """The value without scenes whose background has a pattern."""

    @property
    def is_clear(self) -> bool:
        return self.value >= max(_LEAST, _SURE * self.error)


Scores = Mapping[str, Score]


@dataclass(frozen=True, slots=True)
class Images:
    """The images that a search asks for. They are the same for all units, so that each is drawn once."""

    without: tuple[str, ...] = ()
    """Words that the generator does not know. No image shows them, and no label names them."""

    def labels(self) -> Sequence[str]:
        """Returns all labels of one word."""
        return sayable(self.without)

    @cache  # noqa: B019 (there are as many of them as there are generators)
    def screening(self) -> tuple[str, ...]:
        """Returns prompts of random scenes, in which all labels of one word occur independently of one another."""
        stream = Random("screening")
        return tuple(prompt(draw_scene(stream, self.without, patterned=0.35, plain=0.12)) for _ in range(_SCREENED))

    @cache  # noqa: B019
    def crowds(self) -> tuple[str, ...]:
        """Returns prompts of crowded scenes, in which all compounds occur."""
        stream = Random("crowds")
        return tuple(prompt(draw_crowd(stream, self.without)) for _ in range(_CROWDS))

    @cache  # noqa: B019
    def around(self, label: str) -> tuple[str, ...]:
        """Returns prompts of scenes that show a label among random other objects, at any time of day."""
        stream = Random(f"around {label}")
        scenes = (
            scene_of(each.positive) for each in islice(draw_pairs(label, stream, without=self.without), _ACCOMPANIED)
        )
        texts = [prompt(crowded(each, _COMPANY, stream, self.without)) for each in scenes]
        return tuple(each for each in texts if shows(each, label))

    @cache  # noqa: B019
    def pairs(self, label: str) -> tuple[Pair, ...]:
        """Returns the pairs that test a label, or its exception if it has one."""
        drawn = draw_pairs(label, Random(f"pairs of {label}"), without=self.without)
        if EXCEPT in label:
            # Some of those that are drawn, because there may be none.
            drawn = (each for each in islice(drawn, 4 * _PAIRS) if each.part == "exception")
        return tuple(islice(drawn, _PAIRS))

    @cache  # noqa: B019
    def on_objects(self, label: str) -> Mask:
        """Returns of which pairs no background has a pattern."""
        return np.array([not scene_of(each.positive).ground.pattern for each in self.pairs(label)], bool)

    def prompts(self, labels: Sequence[str]) -> list[str]:
        """Returns the prompts of the pairs of some labels."""
        return [text for label in labels for each in self.pairs(label) for text in (each.positive, each.neutral)]

    def edits(self, labels: Collection[str]) -> list[tuple[str, str]]:
        """Returns prompts, and the instructions that remove a label from their images."""
        return [(each.positive, each.removal) for label in labels for each in self.pairs(label)[:_EDITS]]


def candidates(
    images: Images, screened: Sequence[float], exemplars: Sequence[ToldExemplar], bank: Sequence[str] = ()
) -> list[str]:
    """Returns single labels for a test on pairs: the words of the bank, and by the screening, the best first, those that some
    top exemplars show. With words of the bank, they are fewer.
    """
    effects = _screened(images, np.array(screened))
    shares = {label: _lift([label], exemplars) for label in effects}
    seen = [each for each in effects if _is_seen(shares[each], exemplars)]
    unseen = [each for each in effects if each not in seen and (not seen or effects[each] >= _STRIKING)]
    ranked = [each for some in (seen, unseen) for each in sorted(some, key=lambda each: (-effects[each], each))]
    begun = [each for each in bank if each in effects]
    ranked = [*begun, *(each for each in ranked if each not in begun)]
    return [each for each in ranked if images.pairs(each)][: _SINGLE_WITH_BANK if bank else _SINGLE]


def _screened(images: Images, values: Activations) -> dict[str, float]:
    # Welch's t of the images that show a label and of those that do not; 0 for what random scenes never show, such as the sun.
    found = dict.fromkeys(images.labels(), 0.0)
    has = [shown(each) for each in images.screening()]
    for label in found:
        inside = np.array([label in each for each in has])
        own, rest = values[inside], values[~inside]
        if min(len(own), len(rest)) >= 4:
            error = np.sqrt(own.var() / len(own) + rest.var() / len(rest)) + 1e-9
            found[label] = float((own.mean() - rest.mean()) / error)
    return found


def _lift(labels: Collection[str], exemplars: Sequence[ToldExemplar]) -> tuple[float, float]:
    # The share of top exemplars that show one of the labels, and by how much it is above that of random ones.
    top, random = ([each.whole for each in exemplars if each.kind == kind] for kind in ("top", "random"))
    share = shown_share(labels, top)
    return share, share - shown_share(labels, random)


def shown_share(labels: Collection[str], sentences: Sequence[str]) -> float:
    """Returns the share of pictures that show one of the labels, according to sentences about them."""
    return float(np.mean([any(shows(each, label) for label in labels) for each in sentences])) if sentences else 0.0


def scores(images: Images, labels: Sequence[str], values: Sequence[float], screened: Sequence[float]) -> Scores:
    """Returns the score of each label, from the activations of `images.prompts(labels)`."""
    every = np.array(screened)
    rest = iter(values)
    return {
        label: _score(np.array(list(islice(rest, 2 * len(images.pairs(label))))), every, images.on_objects(label))
        for label in labels
    }


def _score(values: Activations, screened: Activations, on_objects: Mask) -> Score:
    own, twins, sd = values[0::2], values[1::2], screened.std() + 1e-9
    value, error = _above(own, twins, screened), np.sqrt((own.var() + twins.var()) / len(own))
    some = _above(own[on_objects], twins[on_objects], screened) if on_objects.any() else value
    return Score(value=value / sd, error=float(error / sd), on_objects=some / sd)


def _above(own: Activations, twins: Activations, screened: Activations) -> float:
    return float(min(own.mean() - twins.mean(), own.mean() - screened.mean()))


def best(found: Scores) -> list[str]:
    """Returns labels, the best first."""
    return sorted(found, key=lambda each: (-found[each].value, each))


def compounds(
    images: Images, screened: Sequence[float], crowded: Sequence[float], exemplars: Sequence[ToldExemplar]
) -> list[str]:
    """Returns labels of more than one word for a test: a background only if some top exemplars show it. `crowded` may be empty."""
    measured = dict(zip(images.screening(), screened, strict=True))
    measured |= zip(images.crowds(), crowded, strict=True) if crowded else ()
    told = tuple([each.whole for each in exemplars if each.kind == kind] for kind in ("top", "random"))
    found = (
        each
        for each in likely(measured, (told[0], told[1]), images.without)
        if images.pairs(each) and (not is_background(each) or _is_seen(_lift([each], exemplars), exemplars))
    )
    return list(islice(found, _COMPOUNDS))


def _is_seen(lift: tuple[float, float], exemplars: Sequence[ToldExemplar]) -> bool:
    return not exemplars or (lift[0] >= _SEEN and lift[1] > 0)


def excepted(images: Images, label: str, one: Sequence[str], values: Mapping[str, Sequence[float]]) -> list[str]:
    """Returns exceptions of a label for a test, from the images of the screening and of the single labels `one`."""
    sentences = [*images.screening(), *images.prompts(one)]
    found = exceptions(label, sentences, [*values["screen"], *values["single"]], images.without)
    return [each for each in found if images.pairs(each)]


def with_exception(
    images: Images, label: str, tested: Sequence[str], values: Sequence[float], screened: Sequence[float]
) -> str:
    """Returns the label with the exception, of those `tested`, that takes most of the activation away, or without one."""
    rest, found = iter(values), {label: 0.0}
    for each in tested:
        measured = np.array(list(islice(rest, 2 * len(images.pairs(each)))))
        own, twins = measured[0::2], measured[1::2]
        fall, error = own.mean() - twins.mean(), np.sqrt((own.var() + twins.var()) / len(own))
        if fall > max(_LOST * (own.mean() - np.mean(screened)), _SURE * error):
            found[each] = float(fall)
    alike = [each for each in found if found[each] >= _WIDER * max(found.values())]
    return max(alike, key=lambda each: (len(narrower(each.partition(EXCEPT)[2])), found[each]))


def falls(images: Images, labels: Sequence[str], values: Sequence[float], screened: Sequence[float]) -> Scores:
    """Returns how far the activation falls where a label is removed, from those of the images before and after."""
    rest, sd = iter(values), np.array(screened).std() + 1e-9
    found: dict[str, Score] = {}
    for label in labels:
        change = np.array(list(islice(rest, 2 * len(images.edits([label])))))
        drop = (change[0::2] - change[1::2]) / sd
        fall = float(drop.mean())
        found[label] = Score(value=fall, error=float(drop.std() / np.sqrt(len(drop))), on_objects=fall)
    return found


def plain_choice(one: Scores, two: Scores) -> tuple[str, ...]:
    """Returns the best single label, or a combination that beats it clearly."""
    first = best(one)[0]
    return (_clearly_better(two, one, [first], 1.0) or first,)


def _clearly_better(two: Scores, one: Scores, labels: Sequence[str], times: float) -> str:
    # The best of the compounds that have so many times the score of the best of some single labels, or of all if there are none.
    safe = {each: _least(two[each]) for each in two}
    better = [each for each in two if safe[each] > _bar(each, one, labels, times)]
    return max(better, key=lambda each: safe[each], default="")


def _least(score: Score) -> float:
    return score.value - _CLEARLY * score.error


def _bar(compound: str, one: Scores, labels: Sequence[str], times: float) -> float:
    # A unit that responds to a background responds to a label of its pattern, too, in the scenes with that background. Other labels
    # are no part of it, and count only where the exemplars show them.
    is_one_thing = is_background(compound)
    own = [each for each in one if is_one_thing and terms(compound) <= terms(each)]
    rivals = [each for each in labels or (() if is_one_thing else one) if each not in own]
    highest = max((one[each].value for each in rivals), default=_LEAST)
    return max([times * highest, *(_AROUND * one[each].on_objects for each in own)])


def alternatives(
    images: Images, one: Sequence[str], values: Mapping[str, Sequence[float]], refuted: Collection[str] = ()
) -> tuple[str, ...]:
    """Returns two labels of which each alone excites the unit, if there are such, from the images of the screening and of the
    single labels `one`."""
    sentences = [*images.screening(), *images.prompts(one)]
    return either([each for each in one if each not in refuted], sentences, [*values["screen"], *values["single"]])


def shortlist(
    images: Images, one: Scores, two: Scores, exemplars: Sequence[ToldExemplar], both: tuple[str, ...] = ()
) -> list[tuple[str, ...]]:
    """Returns what may be claimed, the best first: a label, or two, that excite the unit clearly and that the exemplars show.

    The `alternatives`, `both`, come first if the exemplars show them. Then comes what at least half of the exemplars show, and two
    that excite the unit alike before one. A compound comes only where it is clearly better than one label.
    """
    clear = _widest(images, [each for each in best(one) if one[each].is_clear], one, exemplars)
    pairs = [(a, b) for n, a in enumerate(clear) for b in clear[n + 1 :] if exemplars and _are_apart(images, a, b)]
    found = {each: _mean(one, each) - _SECOND * (len(each) - 1) for each in [*((each,) for each in clear), *pairs]}
    ranks = {each: _rank(each, exemplars) for each in found}
    if (kind := _overlooked(one, clear, exemplars)) and not ranks[kind,]:
        ranks[kind,] = 1
    ranked = sorted(
        (each for each in ranks if ranks[each]),
        key=lambda each: (-ranks[each], -_is_even(one, each), -found[each], each),
    )
    if both and _rank(both, exemplars):
        ranked = [both, *(each for each in ranked if {*each} != {*both})]
    claimable = {
        each: score for each, score in two.items() if _is_shown([each], exemplars) or _is_overwhelming(score, one)
    }
    compound = _clearly_better(claimable, one, ranked[0] if ranked else (), _BETTER)
    alike = [each for each in claimable if compound and claimable[each].value >= _WIDER * claimable[compound].value]
    for each in alike:
        compound = each if each != compound and _includes(images, each, compound) else compound
    return [*([(compound,)] if compound else []), *ranked][:_SHORTLIST]


def _overlooked(one: Scores, clear: Sequence[str], exemplars: Sequence[ToldExemplar]) -> str:
    # A kind that the few telling exemplars may show though the viewer does not say so: it clearly exceeds all other labels.
    best_kind = next((each for each in clear if single()[each] == "kind"), "")
    is_few = 0 < sum(each.kind == "top" for each in exemplars) < _TELLING
    others = (one[each].value for each in one if best_kind and not terms(each) & terms(best_kind))
    return best_kind if is_few and best_kind and _least(one[best_kind]) > max(others, default=0.0) else ""


def _is_overwhelming(score: Score, one: Scores) -> bool:
    least = max(_OVERWHELMING, _TIMES * max((each.value for each in one.values()), default=0.0))
    return score.value - _CLEARLY * score.error >= least


def _widest(images: Images, clear: Sequence[str], one: Scores, exemplars: Sequence[ToldExemplar]) -> list[str]:
    # Without labels for which a wider one is as good. Of words for the same kinds, as "toy" for "ball", the first one stays.
    wide = [each for each in clear if _rank([each], exemplars)]
    return [
        label
        for n, label in enumerate(clear)
        if not any(
            one[each].value >= _WIDER * one[label].value
            and _includes(images, each, label)
            and not (terms(each) == terms(label) and each in clear[n:])
            for each in wide
        )
    ]


def _includes(images: Images, wide: str, narrow: str) -> bool:
    return float(np.mean([shows(each.positive, wide) for each in images.pairs(narrow)])) >= _INCLUDED


def _are_apart(images: Images, first: str, second: str) -> bool:
    if terms(first) & terms(second):
        return False
    return not (_includes(images, first, second) or _includes(images, second, first))


def _is_even(one: Scores, labels: Sequence[str]) -> bool:
    # Whether each of two labels excites the unit alone.
    weak, strong = (
        sorted((one[each] for each in labels), key=lambda each: each.value) if len(labels) == 2 else (None, None)
    )
    return bool(weak and strong and weak.value - _CLEARLY * weak.error >= _EVEN * strong.value)


def _mean(found: Scores, labels: Sequence[str]) -> float:
    return sum(found[each].value for each in labels) / len(labels)


def _rank(labels: Sequence[str], exemplars: Sequence[ToldExemplar]) -> int:
    # 0: not shown by the exemplars, 1: by some, 2: by half of them.
    share, lift = _lift(labels, exemplars)
    is_less = bool(exemplars) and lift < _MORE
    return 2 if not exemplars or (share >= _OFTEN and not is_less) else int(share >= _SHOWN and not is_less)


def _is_shown(labels: Sequence[str], exemplars: Sequence[ToldExemplar]) -> bool:
    return _rank(labels, exemplars) == 2


def choice(kept: Sequence[tuple[str, ...]], fell: Scores) -> tuple[str, ...]:
    """Returns the labels of the answer: the first of which each loses by its removal."""
    left = (each for each in kept if all(label not in fell or fell[label].value > fell[label].error for label in each))
    return next(left, ())
