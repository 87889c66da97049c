"""Cheaper ways to label a unit, with as many images as the agent was shown and without a language model.

The experiments of an agent are worth what its labels say beyond these.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import stats

from openmaia.agent.tools.seeds import seed as seed_of
from openmaia.core.images import EncodedImage, Pixels
from openmaia.core.services import Generation, Probe, Services
from openmaia.core.units import Unit
from openmaia.offline.vocabulary import phrases
from openmaia.offline.vocabulary.words import WORDS, WordKind, of_kind

FloatArray = npt.NDArray[np.float64]
See = Callable[[Pixels], Mapping[str, float]]
"""Evidence between 0 and 1 by vocabulary word: the experimenter's own eyes, for a comparison on equal terms."""

SECOND = 0.8
"""Smallest score of a second label as a share of the first one's."""
OUTSTANDING = 4.0
"""Smallest score of an exhaustive search, in robust deviations above the median of all hypotheses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a baseline may use."""

    services: Services
    see: See
    pictures: Sequence[EncodedImage] = ()
    """Images of the explore split, for methods that use a collection."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """The answer of a baseline."""

    labels: tuple[str, ...]
    """Empty for an abstention."""
    images: int = 0
    """Images that the unit was shown beyond its exemplars."""

    @property
    def description(self) -> str:
        return f"The unit responds to {' and to '.join(self.labels)}." if self.labels else ""


class Baseline(Protocol):
    def __call__(self, unit: Unit, means: Means, budget: int) -> Labelled:
        """Labels a unit. `budget` is the largest number of images that the unit may be shown beyond its exemplars."""
        ...


def exemplars_only(unit: Unit, means: Means, budget: int) -> Labelled:
    """Takes the words that the top exemplars show more than random images, in pooled deviations."""
    del budget
    known = means.services.exemplars.read(unit)
    top, chance = (_sights([e.image for e in known.of_kind(kind)], means.see) for kind in ("top", "random"))
    if not len(top) or not len(chance):
        return Labelled(labels=())
    spread = np.sqrt((top.var(axis=0) + chance.var(axis=0)) / 2) + 0.05
    return Labelled(labels=_best((top.mean(axis=0) - chance.mean(axis=0)) / spread))


def dissected(unit: Unit, means: Means, budget: int) -> Labelled:
    """Takes the word whose evidence over a collection is most similar to the unit's activations.

    After CLIP-Dissect (Oikarinen and Weng, 2023) with its cosine-cubed similarity; the eyes replace CLIP.
    """
    shown = means.pictures[:budget]
    if len(shown) < 3:
        return Labelled(labels=())
    answers = means.services.target.probe([Probe(unit=unit, image=image) for image in shown])
    activations = np.array([answer.value for answer in answers])
    return Labelled(labels=_best(cosine_cubed(activations, _sights(shown, means.see))), images=len(shown))


def cosine_cubed(activations: FloatArray, evidence: FloatArray) -> FloatArray:
    """Returns the cosine of the cubes of the standardised columns, which emphasises high values.

    Args:
        activations: (n,).
        evidence: (n, words).

    Returns:
        (words,); 0 for a column without variance.
    """

    def cubed(columns: FloatArray) -> FloatArray:
        centred = columns - columns.mean(axis=0)
        scale = columns.std(axis=0)
        return (centred / np.where(scale > 1e-12, scale, np.inf)) ** 3

    unit, words = cubed(activations), cubed(evidence)
    norms = np.linalg.norm(unit) * np.linalg.norm(words, axis=0)
    return np.where(norms > 0, unit @ words / np.where(norms > 0, norms, 1), 0)


def exhaustive(unit: Unit, means: Means, budget: int) -> Labelled:
    """Draws every word, and every colour with every shape or pattern, until the budget is used up."""
    searched = searches(budget)
    seeds = [seed_of(means.seed, "explore", prompt, index) for index, (_, prompt) in enumerate(searched)]
    requests = [Generation(prompt=prompt, seed=number) for (_, prompt), number in zip(searched, seeds, strict=True)]
    images = means.services.generator.generate(requests)
    answers = means.services.target.probe([Probe(unit=unit, image=made.image) for made in images])
    return Labelled(labels=chosen(searched, [answer.value for answer in answers], SECOND), images=len(searched))


def hypotheses() -> list[tuple[str, ...]]:
    """Returns single words, then pairs of a colour and a shape or pattern."""
    carriers = of_kind(WordKind.SHAPE, WordKind.PATTERN)
    pairs = [(colour.name, carrier.name) for carrier in carriers for colour in of_kind(WordKind.COLOUR)]
    return [*((word.name,) for word in WORDS), *pairs]


def searches(budget: int) -> list[tuple[str, str]]:
    """Returns (hypothesis, prompt), repeating all hypotheses in other contexts until the budget is used up."""
    every = hypotheses()

    def prompt(words: Sequence[str], turn: int) -> str:
        return phrases.single(words[0], turn) if len(words) == 1 else phrases.figure(words[1], words[0])

    chosen = [(every[index % len(every)], index // len(every)) for index in range(budget)]
    return [(" ".join(words), prompt(words, turn)) for words, turn in chosen]


def chosen(searched: Sequence[tuple[str, str]], values: Sequence[float], second: float) -> tuple[str, ...]:
    """Returns the hypothesis with the highest mean if it is outstanding.

    The next one that shares no word with it is added if it reaches the share `second` of its height above the median.
    """
    by_name: dict[str, list[float]] = {}
    for (name, _), value in zip(searched, values, strict=True):
        by_name.setdefault(name, []).append(value)
    means = {name: float(np.mean(group)) for name, group in by_name.items()}
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


def random_words(unit: Unit, means: Means, budget: int) -> Labelled:
    """Takes a word that depends on a hash of the unit."""
    del budget
    number = int.from_bytes(hashlib.sha256(f"{means.seed} {unit}".encode()).digest()[:8])
    return Labelled(labels=(WORDS[number % len(WORDS)].name,))


BASELINES: Mapping[str, Baseline] = {
    "exemplars only": exemplars_only,
    "dissected": dissected,
    "exhaustive search": exhaustive,
    "random words": random_words,
}


def picture_order(pictures: Sequence[EncodedImage], seed: int) -> list[EncodedImage]:
    """Sorts images by a hash of their digests, so that any first part is a fair sample."""
    return sorted(pictures, key=lambda image: seed_of(seed, "explore", image.digest, 0))


def _sights(pictures: Sequence[EncodedImage], see: See) -> FloatArray:
    """(images, words)."""
    sights = [see(image.pixels) for image in pictures]
    return np.array([[sight[word.name] for word in WORDS] for sight in sights]).reshape(-1, len(WORDS))


def _best(scores: FloatArray) -> tuple[str, ...]:
    """Returns the best word, and the second if it is close; none if no score is above 0."""
    first, second = (int(index) for index in np.argsort(-scores, kind="stable")[:2])
    if scores[first] <= 0:
        return ()
    near = scores[second] >= SECOND * scores[first]
    return (WORDS[first].name, WORDS[second].name) if near else (WORDS[first].name,)
