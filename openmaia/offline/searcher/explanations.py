"""What explains the activations of all images that were measured: a label, a compound, two alternatives, or a label with an
exception. The better it separates the images that excite a unit from all others, the better it is."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from openmaia.core.images import Mask
from openmaia.offline.searcher.compounds import compounds, is_sayable, scenery
from openmaia.offline.searcher.exceptions import EXCEPTION_KINDS, is_apart
from openmaia.offline.searcher.labels import EXCEPT, scene_of, shown, shows, single, terms

# An image excites a unit if its activation is above the usual low ones by this share of the way to the highest ones.
_EXCITED, _LOW, _HIGHEST = 0.18, 0.2, 3
# Images that show an explanation, at least.
_FEW = 4
# Each explanation has so many errors more than are counted, and those of a compound and of two labels weigh so much more: what
# says more has to explain more.
_SLACK, _COMPOUND, _TWO = 4, 1.1, 1.5
# Explanations that are compared exactly, and kept.
_COMPARED, _KEPT = 12, 8

Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The labels of an answer, and how well they fit."""

    labels: tuple[str, ...]
    """The one that excites the unit most comes first."""
    fit: float
    """The F1 score of a prediction: the images that show one of the labels excite the unit, and no others."""


@dataclass(frozen=True, slots=True)
class _Table:
    names: Sequence[str]
    has: Numbers
    """1 where an image shows a label, shape (images, labels)."""

    @classmethod
    def of(cls, described: Sequence[Collection[str]]) -> "_Table":
        counts = Counter(chain.from_iterable(described))
        names = sorted(each for each, number in counts.items() if number >= _FEW)
        at = {name: n for n, name in enumerate(names)}
        has = np.zeros((len(described), len(names)), np.float32)
        for row, labels in enumerate(described):
            has[row, [at[each] for each in labels if each in at]] = 1
        return cls(names, has)


@lru_cache(64)
def explanations(
    sentences: tuple[str, ...], values: tuple[float, ...], without: tuple[str, ...] = ()
) -> Sequence[Explanation]:
    """Returns what explains the activations, the best first. One label comes before others that fit hardly better.

    Args:
        sentences: What each image shows.
        values: The activation of each image.
        without: Words of which no label may have one.
    """
    every = np.array(values)
    is_excited = excited(every)
    rough = dict(_tried(sentences, is_excited.astype(np.float32), without))
    compared = sorted(rough, key=lambda each: (rough[each], each))[:_COMPARED]
    shown_by = {labels: _shown(labels, sentences) for labels in compared}
    errors = {labels: _weighed(labels, int((has ^ is_excited).sum())) for labels, has in shown_by.items()}
    return [
        Explanation(labels=_strongest_first(each, sentences, every), fit=_f1(shown_by[each], is_excited))
        for each in sorted(errors, key=lambda each: (errors[each], each))[:_KEPT]
    ]


def excited(values: npt.NDArray[np.float64]) -> Mask:
    """Returns which images excite a unit."""
    low, high = np.quantile(values, _LOW), np.sort(values)[-_HIGHEST:].mean()
    return values > low + _EXCITED * (high - low)


def _tried(
    sentences: Sequence[str], is_excited: Numbers, without: Collection[str]
) -> list[tuple[tuple[str, ...], float]]:
    # The likeliest of each form with their weighed errors, by what each sentence says.
    known = {each for each in single() if is_sayable(each, without)}
    one = _Table.of([(shown(each) | {*scenery(scene_of(each))}) & known for each in sentences])
    more = _Table.of([compounds(each) for each in sentences])
    total = is_excited.sum()
    found: list[tuple[tuple[str, ...], float]] = []
    for table in (one, more):
        errors = total + table.has.sum(axis=0) - 2 * table.has.T @ is_excited
        found += [((table.names[n],), errors[n]) for n in _fewest(errors) if is_sayable(table.names[n], without)]
    hits, every = one.has.T @ is_excited, one.has.sum(axis=0)
    both_hits, both = (one.has * is_excited[:, None]).T @ one.has, one.has.T @ one.has
    errors = total + (every[:, None] + every - both) - 2 * (hits[:, None] + hits - both_hits)
    errors[np.tril_indices(len(errors))] = np.inf
    found += [(names, error) for names, error in _named(one, errors) if not terms(names[0]) & terms(names[1])]
    errors = total + (every[:, None] - both) - 2 * (hits[:, None] - both_hits)
    errors[:, [single()[each] not in EXCEPTION_KINDS for each in one.names]] = np.inf
    found += [
        ((f"{name}{EXCEPT}{other}",), error) for (name, other), error in _named(one, errors) if is_apart(name, other)
    ]
    return [(labels, _weighed(labels, error)) for labels, error in found]


def _named(table: _Table, errors: Numbers) -> Iterator[tuple[tuple[str, str], float]]:
    for n in _fewest(errors.ravel()):
        first, second = divmod(int(n), len(table.names))
        yield (table.names[first], table.names[second]), float(errors[first, second])


def _fewest(errors: Numbers) -> Sequence[int]:
    return np.argsort(errors, kind="stable")[:_COMPARED].tolist()


def _weighed(labels: Sequence[str], errors: float) -> float:
    is_two = len(labels) > 1 or EXCEPT in labels[0]
    return (errors + _SLACK) * (_TWO if is_two else 1.0 if labels[0] in single() else _COMPOUND)


def _shown(labels: Sequence[str], sentences: Sequence[str]) -> Mask:
    return np.array([any(shows(each, label) for label in labels) for each in sentences])


def _strongest_first(
    labels: tuple[str, ...], sentences: Sequence[str], values: npt.NDArray[np.float64]
) -> tuple[str, ...]:
    if len(labels) == 1:
        return labels
    means = {each: values[has].mean() if (has := _shown([each], sentences)).any() else -np.inf for each in labels}
    return tuple(sorted(labels, key=lambda each: -means[each]))


def _f1(has: Mask, is_excited: Mask) -> float:
    return float(2 * (has & is_excited).sum() / max(has.sum() + is_excited.sum(), 1))
