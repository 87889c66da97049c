"""Compares labels with a known truth.

A truth is a tuple of slots. `or` units have several slots, each of which activates the unit; a slot is one or more
concepts that must be present together. Each label is ranked against the slots of all units and near distractors of them
(another word of the same kind, a part of a combination). It hits a slot of its unit if that slot alone ranks first.
Labels and slots are matched one to one.

Labels and slots are compared by their common terms: vocabulary words in any of their spellings, other words as they are
written. A synonym from outside the vocabulary is not recognised.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.claims import jaccard
from openmaia.offline.evaluation.terms import Terms, vocabulary_terms
from openmaia.offline.vocabulary.words import BY_NAME, of_kind

TruthSlots = Sequence[Sequence[str]]


def slot_terms(truth: TruthSlots) -> tuple[Terms, ...]:
    """Returns the terms of each slot."""
    return tuple(frozenset(term for name in slot for term in vocabulary_terms(name)) for slot in truth)


def candidates(truths: Iterable[TruthSlots]) -> tuple[Terms, ...]:
    """Returns the slots of all truths and their near distractors: any word replaced by another one of its kind, and each
    word of a combination alone."""
    found: dict[Terms, None] = {}
    for slot in (slot for truth in truths for slot in slot_terms(truth)):
        found[slot] = None
        for word in sorted(slot & BY_NAME.keys()):
            for other in of_kind(BY_NAME[word].kind):
                found[slot - {word} | {other.name}] = None
            found[frozenset({word})] = None
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthMatch:
    """How the labels of one unit match its truth."""

    labels: int
    slots: int
    hits: int
    """Labels that were matched to slots."""
    inside: bool
    """Whether the vocabulary has a word for every concept of the truth; if not, the right answer is an abstention."""

    @property
    def exact(self) -> bool:
        """Whether every slot is named and nothing else; for a truth outside the vocabulary, whether nothing is claimed."""
        return self.hits == self.slots == self.labels if self.inside else self.labels == 0


def match(labels: Sequence[str], truth: TruthSlots, among: Sequence[Terms]) -> TruthMatch:
    """Matches the labels of one unit with its truth. `among` are the candidates of all truths."""
    given = [vocabulary_terms(label) for label in dict.fromkeys(labels)]
    slots = slot_terms(truth)
    hits = np.array([[_ranks_first(label, slot, among) for slot in slots] for label in given]).reshape(-1, len(slots))
    rows, columns = optimize.linear_sum_assignment(hits, maximize=True)
    inside = all(name in BY_NAME for slot in truth for name in slot)
    return TruthMatch(labels=len(given), slots=len(slots), hits=int(hits[rows, columns].sum()), inside=inside)


def _ranks_first(label: Terms, slot: Terms, among: Sequence[Terms]) -> bool:
    own = jaccard(label, slot)
    return own > 0 and all(jaccard(label, other) < own for other in among if other != slot)


def rates(matches: Sequence[TruthMatch], resamples: int = 2000) -> dict[str, object]:
    """Summarises the matches of many units.

    Returns:
        `exact` with Wilson's interval over units; `precision` over all labels and `recall` over the slots of truths inside
        the vocabulary, with bootstrap intervals over units. Each is [estimate, low, high], or None.
    """
    inside = [each for each in matches if each.inside]
    outside = [each for each in matches if not each.inside]
    return {
        "units": len(matches),
        "exact": proportion([each.exact for each in matches]),
        "exact_inside": proportion([each.exact for each in inside]),
        "abstained_outside": proportion([each.exact for each in outside]),
        "precision": _mean([each.hits / each.labels for each in matches if each.labels], resamples),
        "recall": _mean([each.hits / each.slots for each in inside], resamples),
    }


def _mean(values: Sequence[float], resamples: int) -> list[float] | None:
    """[mean, low, high] by scipy.stats.bootstrap with percentiles; the mean three times if all values are equal."""
    if not values:
        return None
    data = np.asarray(values, dtype=np.float64)
    low = high = data.mean()
    if np.ptp(data) > 0:
        random = np.random.default_rng(0)
        result = stats.bootstrap((data,), np.mean, n_resamples=resamples, rng=random, method="percentile")
        low, high = result.confidence_interval
    return [round(float(value), 4) for value in (data.mean(), low, high)]
