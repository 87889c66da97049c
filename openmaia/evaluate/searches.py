"""Exhaustive search: every hypothesis of the vocabulary drawn and shown, the best ones believed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openmaia.pictures import phrases
from openmaia.pictures.vocabulary import WORDS, Kind, of_kind
from openmaia.services import Generation, Probe, Services
from openmaia.tools.seeds import seed as seed_of
from openmaia.units import Unit

OUTSTANDING = 4.0
"""Robust deviations above the median of all hypotheses below which nothing is claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """name: a word, or a colour and a carrier."""

    name: str
    prompt: str


def hypotheses() -> list[tuple[str, ...]]:
    """Single words first, then pairs."""
    carriers = of_kind(Kind.SHAPE, Kind.PATTERN)
    pairs = [(colour.name, carrier.name) for carrier in carriers for colour in of_kind(Kind.COLOUR)]
    return [*((word.name,) for word in WORDS), *pairs]


def prompts(budget: int) -> list[Asked]:
    """Round by round over all hypotheses, each round in other contexts, until the budget is used up."""
    everything = hypotheses()
    asked = [everything[at % len(everything)] for at in range(budget)]
    return [Asked(name=" ".join(words), prompt=_prompt(words, at // len(everything))) for at, words in enumerate(asked)]


def _prompt(words: Sequence[str], index: int) -> str:
    return phrases.single(words[0], index) if len(words) == 1 else phrases.figure(words[1], words[0])


def measured(unit: Unit, services: Services, asked: Sequence[Asked], seed: int) -> list[float]:
    seeds = [seed_of(seed, "explore", one.prompt, at) for at, one in enumerate(asked)]
    wanted = [Generation(prompt=one.prompt, seed=number) for one, number in zip(asked, seeds, strict=True)]
    drawn = services.generator.generate(wanted)
    answers = services.target.probe([Probe(unit=unit, picture=one.picture) for one in drawn])
    return [answer.value for answer in answers]


def chosen(asked: Sequence[Asked], values: Sequence[float], second: float) -> tuple[str, ...]:
    """The hypothesis of the highest mean where it stands out from all, and the next that shares no word with it where
    it reaches the share `second` of the first's height above the median."""
    means = {
        name: float(np.mean([v for a, v in zip(asked, values, strict=True) if a.name == name]))
        for name in dict.fromkeys(one.name for one in asked)
    }
    if not means:
        return ()
    middle = float(np.median(list(means.values())))
    spread = float(stats.median_abs_deviation(list(means.values()), scale="normal")) + 1e-12
    best, *others = sorted(means, key=lambda name: (-means[name], name))
    height = means[best] - middle
    if height < OUTSTANDING * spread:
        return ()
    apart = [name for name in others if not set(name.split()) & set(best.split())]
    return (best, apart[0]) if apart and means[apart[0]] - middle >= second * height else (best,)
