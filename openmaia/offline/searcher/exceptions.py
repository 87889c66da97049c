"""Answers with an exception, such as "boat without night": which of them are tried."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from openmaia.core.images import Mask
from openmaia.offline.searcher.labels import EXCEPT, narrower, shows, single, terms

Activations = npt.NDArray[np.float64]

EXCEPTION_KINDS = ("group", "time")
"""The kinds of labels that are exceptions. No single kinds: too few images show one of them by chance, and there are many."""

# The share of the activation that an exception takes away in scenes that are measured already, and in how many standard errors.
_LOST, _SURE = 0.5, 2.0
# Scenes with an exception that are measured already, at least, and exceptions that are tested on pairs.
_FEW, _TESTED = 3, 3


def exceptions(label: str, sentences: Sequence[str], values: Sequence[float], without: Collection[str]) -> list[str]:
    """Returns labels with an exception, the likeliest first: what takes at least half of the activation away from scenes that
    show the label.

    Args:
        label: Without an exception.
        sentences: What each image shows.
        values: The activation of each image.
    """
    every = np.array(values)
    has = np.array([shows(each, label) for each in sentences])
    own = [each for each in sentences if shows(each, label)]
    least = _LOST * max(every[has].mean() - every[~has].mean(), 0.0) if has.any() and not has.all() else np.inf
    sure = {name: _fall(every[has], np.array([shows(each, name) for each in own]), least) for name in _names(label)}
    likely = sorted((each for each in sure if sure[each] >= _SURE), key=lambda each: (-sure[each], each))
    return [f"{label}{EXCEPT}{each}" for each in likely if each not in without][:_TESTED]


def is_apart(label: str, exception: str) -> bool:
    """Whether an image can show a label with an exception: the label neither says it nor something narrower."""
    return not terms(label) & {exception, *narrower(exception)}


def _names(label: str) -> Iterator[str]:
    yield from (each for each, what in single().items() if what in EXCEPTION_KINDS and is_apart(label, each))


def _fall(values: Activations, has: Mask, least: float) -> float:
    # Welch's t of the fall of the activation where an exception is shown. 0 if the fall is not above `least`.
    kept, gone = values[~has], values[has]
    if min(len(kept), len(gone)) < _FEW:
        return 0.0
    fall = kept.mean() - gone.mean()
    error = np.sqrt(kept.var() / len(kept) + gone.var() / len(gone)) + 1e-9
    return float(fall / error) if fall > least else 0.0
