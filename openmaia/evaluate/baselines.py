"""Cheaper ways to label a unit, for the same table: each gets as many images as the agent was shown, and no language model.

What an agent's experiments are worth is what it says beyond these.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from openmaia.evaluate import searches
from openmaia.images import Picture, Pixels
from openmaia.pictures.vocabulary import WORDS
from openmaia.services import Probe, Services
from openmaia.tools.seeds import seed as seed_of
from openmaia.units import Unit

Values = npt.NDArray[np.float64]
See = Callable[[Pixels], Mapping[str, float]]
"""Evidence between 0 and 1 by vocabulary word: the experimenter's own eyes, for a comparison on equal terms."""

SECOND = 0.8
"""A second word is named where its score reaches this share of the first's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a baseline may use. pictures: of the explore half, for labellers that look at a collection."""

    services: Services
    see: See
    pictures: Sequence[Picture] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """labels: empty for an abstention. images: that the unit was shown beyond its exemplars."""

    labels: tuple[str, ...]
    images: int = 0

    @property
    def description(self) -> str:
        return f"The unit responds to {' and to '.join(self.labels)}." if self.labels else ""


class Baseline(Protocol):
    def __call__(self, unit: Unit, means: Means, budget: int) -> Labelled:
        """budget: images that the unit may be shown beyond its exemplars."""
        ...


def exemplars_only(unit: Unit, means: Means, budget: int) -> Labelled:
    """The words that the top exemplars show more of than random pictures do, in pooled deviations. No experiments."""
    del budget
    known = means.services.exemplars.read(unit)
    top, chance = (_sights([e.picture for e in known.of_kind(kind)], means.see) for kind in ("top", "random"))
    if not len(top) or not len(chance):
        return Labelled(labels=())
    spread = np.sqrt((top.var(axis=0) + chance.var(axis=0)) / 2) + 0.05
    return Labelled(labels=_best((top.mean(axis=0) - chance.mean(axis=0)) / spread))


def dissected(unit: Unit, means: Means, budget: int) -> Labelled:
    """After CLIP-Dissect (Oikarinen and Weng, 2023), with its cosine-cubed similarity: the word whose evidence over a
    collection of pictures goes with the unit's activations over it. The eyes stand in for CLIP."""
    shown = means.pictures[:budget]
    if len(shown) < 3:
        return Labelled(labels=())
    answers = means.services.target.probe([Probe(unit=unit, picture=picture) for picture in shown])
    activations = np.array([answer.value for answer in answers])
    return Labelled(labels=_best(cosine_cubed(activations, _sights(shown, means.see))), images=len(shown))


def cosine_cubed(activations: Values, evidence: Values) -> Values:
    """activations (n,), evidence (n, words) -> (words,): the cosine of the cubes of the centred, scaled columns, which
    counts what is high far more than what is middling. 0 for a column without variance."""

    def cubed(columns: Values) -> Values:
        centred = columns - columns.mean(axis=0)
        scale = columns.std(axis=0)
        return (centred / np.where(scale > 1e-12, scale, np.inf)) ** 3

    unit, words = cubed(activations), cubed(evidence)
    norms = np.linalg.norm(unit) * np.linalg.norm(words, axis=0)
    return np.where(norms > 0, unit @ words / np.where(norms > 0, norms, 1), 0)


def exhaustive(unit: Unit, means: Means, budget: int) -> Labelled:
    """Every word, and every colour with every shape or pattern, drawn in turn until the images are used up."""
    prompts = searches.prompts(budget)
    values = searches.measured(unit, means.services, prompts, means.seed)
    return Labelled(labels=searches.chosen(prompts, values, SECOND), images=len(prompts))


def random_words(unit: Unit, means: Means, budget: int) -> Labelled:
    """One word of the vocabulary, drawn by a hash of the unit."""
    del budget
    drawn = int.from_bytes(hashlib.sha256(f"{means.seed} {unit}".encode()).digest()[:8])
    return Labelled(labels=(WORDS[drawn % len(WORDS)].name,))


def given(labels: Mapping[Unit, Sequence[str]]) -> Baseline:
    """Labels that came from elsewhere: imported ones of another method, or those of `human` records."""

    def lookup(unit: Unit, means: Means, budget: int) -> Labelled:
        del means, budget
        return Labelled(labels=tuple(labels.get(unit, ())))

    return lookup


BASELINES: Mapping[str, Baseline] = {
    "exemplars only": exemplars_only,
    "dissected": dissected,
    "exhaustive search": exhaustive,
    "random words": random_words,
}


def picture_order(pictures: Sequence[Picture], seed: int) -> list[Picture]:
    """In an order of their digests' hashes, so that any first part of it is a fair sample."""
    return sorted(pictures, key=lambda picture: seed_of(seed, "explore", picture.digest, 0))


def _sights(pictures: Sequence[Picture], see: See) -> Values:
    """(pictures, words)"""
    sights = [see(picture.pixels) for picture in pictures]
    return np.array([[sight[word.name] for word in WORDS] for sight in sights]).reshape(-1, len(WORDS))


def _best(scores: Values) -> tuple[str, ...]:
    """The best word, and the second where it comes near; none where no score is above 0."""
    first, second = (int(at) for at in np.argsort(-scores, kind="stable")[:2])
    if scores[first] <= 0:
        return ()
    near = scores[second] >= SECOND * scores[first]
    return (WORDS[first].name, WORDS[second].name) if near else (WORDS[first].name,)
