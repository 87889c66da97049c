"""Answers of two labels of which each alone excites a unit, such as "boat" and "night"."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from openmaia.core.images import Mask
from openmaia.offline.searcher.exceptions import Activations
from openmaia.offline.searcher.labels import shown, shows, terms
from openmaia.runs.evidence import rank_auc

# AUC of the images that show one label alone, against those that show neither; before the labels are read exactly, it may be less.
_CLEAR, _LIKELY = 0.95, 0.7
# The weaker label has this share of the effect of the stronger one.
_EVEN = 0.35
# A wider label explains as much as two with this share of what they explain.
_WIDER = 0.9
# Images that show one label alone, at least.
_FEW = 5


def either(labels: Sequence[str], sentences: Sequence[str], values: Sequence[float]) -> tuple[str, ...]:
    """Returns the two labels that explain the activations best, the stronger one first. Images that show one of them alone have to
    exceed those that show neither, each label by a similar amount. None if no two do, or one label explains as much.

    Args:
        sentences: What each image shows.
        values: The activation of each image.
    """
    every, said = np.array(values), [shown(each) for each in sentences]
    rough = {label: np.array([label in each for each in said]) for label in labels}
    apart = [each for each in combinations(labels, 2) if not terms(each[0]) & terms(each[1])]
    likely = [(one, other) for one, other in apart if _effects(every, rough[one], rough[other], _LIKELY)]
    if not likely:
        return ()
    # What a sentence shows without a word, as the stars of a night, takes longer to find out.
    exact = {label: np.array([shows(each, label) for each in sentences]) for label in labels}
    effects = {(one, other): _effects(every, exact[one], exact[other], _CLEAR) for one, other in likely}
    explained = {
        pair: _explained(every, exact[pair[0]] + 2 * exact[pair[1]])
        for pair, found in effects.items()
        if found and min(found) >= _EVEN * max(found)
    }
    best = max(explained, key=lambda pair: explained[pair], default=())
    if not best or any(_explained(every, exact[each]) >= _share(each, best) * explained[best] for each in labels):
        return ()
    return best if effects[best][0] >= effects[best][1] else best[::-1]


def _share(label: str, pair: Sequence[str]) -> float:
    # Of what two labels explain, the share with which one explains as much: less for a wider one, "furniture" for "table" and "chair".
    return _WIDER if terms(label) >= terms(pair[0]) | terms(pair[1]) else 1.0


def _effects(values: Activations, one: Mask, other: Mask, least: float) -> tuple[float, ...]:
    # How far the mean of each label alone is above that of neither. Empty if one of them is not so clearly above.
    neither = values[~one & ~other]
    alone = values[one & ~other], values[other & ~one]
    if min(len(neither), *map(len, alone)) < _FEW:
        return ()
    if any((rank_auc(each.tolist(), neither.tolist()) or 0.0) < least for each in alone):
        return ()
    return tuple(float(each.mean() - neither.mean()) for each in alone)


def _explained(values: Activations, groups: npt.NDArray[np.int_] | Mask) -> float:
    # The variance of the means of groups, as a share.
    means = sum((groups == each) * values[groups == each].mean() for each in np.unique(groups))
    return float(np.var(means) / (np.var(values) + 1e-12))
