"""The search for contexts in which a classifier scores a class higher or lower: what is shown, and what is claimed.

The class is first measured in random scenes. The contexts with the clearest differences are then measured in new pairs of scenes
that differ in nothing else, and at most two are claimed.
"""

import re
from collections.abc import Sequence
from math import sqrt
from random import Random
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

from openmaia.core.messages import Message
from openmaia.offline.searcher.contexts import contexts, draw_class, is_kind, named, pair
from openmaia.offline.searcher.pairs import prompt

NONE = "[BIAS]: NONE"
_CLASS = re.compile(r"^The class is: (?P<name>.+)$", re.MULTILINE)
_SCREENED = 160
_CANDIDATES = 4
_PAIRS = 20
# Smallest absolute t for a claim. It is high, because the contexts are the best of twenty.
_SURE = 3.5
# Smallest absolute difference of mean logits for a claim, and that of a second claim as a share of the first one's.
_LEAST, _SECOND = 0.25, 0.5


Without = tuple[str, ...]
"""Words that the generator does not know. No scene shows them, and no claim names them."""


def class_asked(messages: Sequence[Message], without: Without) -> str | None:
    """Returns the class of the task `bias`. None in another task. Empty if the generator draws no such object, or no contexts."""
    if len(messages) < 2 or "[BIAS]:" not in messages[1].text or not (found := _CLASS.search(messages[1].text)):
        return None
    name = found["name"].strip()
    return name if is_kind(name, without) and contexts(without) else ""


def screening(name: str, without: Without = ()) -> list[str]:
    """Returns the prompts of random scenes of the class."""
    stream = Random(f"contexts of {name}")
    return [prompt(draw_class(name, stream, without)) for _ in range(_SCREENED)]


def candidates(name: str, values: Sequence[float], without: Without = ()) -> list[str]:
    """Returns the contexts with the largest absolute t statistics (Welch's) in the screening, the largest first."""
    shown = [frozenset(named(text)) for text in screening(name, without)]

    def height(context: str) -> float:
        # A scene of which nothing is said has clear weather.
        has = [context in each or (context == "clear" and not each & {*contexts()["clear"][1]}) for each in shown]
        groups = [[value for value, is_in in zip(values, has, strict=True) if is_in is side] for side in (True, False)]
        if min(map(len, groups)) < 2:
            return 0.0
        error = sqrt(sum(stdev(each) ** 2 / len(each) for each in groups))
        return abs(fmean(groups[0]) - fmean(groups[1])) / (error + 1e-9)

    return sorted(contexts(without), key=lambda context: (-height(context), context))[:_CANDIDATES]


def confirmations(name: str, chosen: Sequence[str], without: Without = ()) -> list[str]:
    """Returns prompts of new scenes: for each context in turn _PAIRS pairs, with and without it."""
    streams = [(context, Random(f"contexts of {name}, {context}")) for context in chosen]
    return [text for context, stream in streams for _ in range(_PAIRS) for text in pair(name, context, stream, without)]


def answer(name: str, chosen: Sequence[str], values: Sequence[float]) -> str:
    """Returns the answer: the contexts with sure differences between the scenes of a pair, at most two, or NONE."""
    pairs = np.reshape(values, (len(chosen), _PAIRS, 2))
    measured = [(context, *_difference(each)) for context, each in zip(chosen, pairs, strict=True)]
    sure = sorted((each for each in measured if abs(each[2]) >= _SURE and abs(each[1]) >= _LEAST), key=_size)
    kept = [each for each in sure[:2] if abs(each[1]) >= _SECOND * abs(sure[0][1])]
    if not kept:
        return NONE
    claims = "; ".join(
        f"{context} {'raises' if mean > 0 else 'lowers'} the logit of {name} by {abs(mean):.2g} (t {abs(t):.1f})"
        for context, mean, t in kept
    )
    labels = "\n".join(
        f"[LABEL {n}]: {'+' if mean > 0 else '-'} {context}" for n, (context, mean, _) in enumerate(kept, 1)
    )
    return f"[BIAS]: {claims}.\n{labels}"


def _size(measured: tuple[str, float, float]) -> float:
    return -abs(measured[1])


def _difference(pairs: npt.NDArray[np.float64]) -> tuple[float, float]:
    # The mean difference of pairs, and Student's t.
    differences = pairs[:, 0] - pairs[:, 1]
    mean = float(differences.mean())
    return mean, mean / (float(differences.std(ddof=1)) / sqrt(len(differences)) + 1e-9)
