"""Measures whether replicates come to the same result. As a control, units of one layer are compared: vague labels that
fit every unit agree between units as well.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Protocol

import numpy as np

from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.claims import Claim, content_words, jaccard
from openmaia.evaluation.language_model import (
    LanguageModel,
    MalformedAnswer,
    Question,
    UnansweredQuestion,
    fill_template,
)

ClaimPair = tuple[Claim, Claim]

TermExtractor = Callable[[str], frozenset[str]]
"""Returns the terms of a text, such as its content words."""

_MAX_OTHERS = 4
"""Other units with which the replicates of a unit are compared."""


class ClaimSimilarity(Protocol):
    """Measures how similar two claims are."""

    @property
    def name(self) -> str:
        """In results."""
        ...

    def compare(self, pairs: Sequence[ClaimPair]) -> list[float | None]:
        """Returns for each pair how similar they are, from 0 to 1; None if they could not be compared."""
        ...


class WordOverlap:
    """Compares two claims by the terms of their labels.

    The labels of both are matched one to one so that the sum of the Jaccard indices of their terms is maximal. This sum
    is divided by the larger number of labels. Two abstentions have similarity 1, an abstention and another claim 0.
    Synonyms are not recognised.
    """

    name = "words in common"

    def __init__(self, terms: TermExtractor = content_words):
        self._terms = terms

    def compare(self, pairs: Sequence[ClaimPair]) -> list[float | None]:
        """Returns the overlap for each pair."""
        return [self._overlap(first, second) for first, second in pairs]

    def _overlap(self, first: Claim, second: Claim) -> float:
        from scipy import optimize  # which takes half a second; a process that investigates compares no claims

        if first.is_abstention or second.is_abstention:
            return float(first.is_abstention and second.is_abstention)
        ours, theirs = ([self._terms(label) for label in dict.fromkeys(c.statements)] for c in (first, second))
        overlaps = np.array([[jaccard(own, other) for other in theirs] for own in ours])
        rows, columns = optimize.linear_sum_assignment(overlaps, maximize=True)
        return float(overlaps[rows, columns].sum()) / max(len(ours), len(theirs))


class ModelSimilarity:
    """Asks a language model whether two claims have the same meaning."""

    def __init__(self, model: LanguageModel):
        self.name = f"judged by {model.name}"
        self._model = model

    def compare(self, pairs: Sequence[ClaimPair]) -> list[float | None]:
        """Returns 1 or 0 for each pair; None without a usable answer."""
        questions = [
            Question.of(fill_template("same", one=_statement(first), other=_statement(second)))
            for first, second in pairs
        ]
        answers = self._model.ask_all(questions, _parse_yes)
        return [None if isinstance(answer, UnansweredQuestion) else answer for answer in answers]


def _statement(claim: Claim) -> str:
    return (
        "; ".join(filter(None, (claim.description, *claim.labels)))
        if not claim.is_abstention
        else "(nothing can be said)"
    )


def _parse_yes(answer: str) -> float:
    word = answer.strip().strip("*.\"'").casefold()
    if word not in ("yes", "no"):
        raise MalformedAnswer(f"yes or no was asked for, and {answer[:60]!r} came")
    return float(word == "yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How similar the claims of replicates are, as measured by one method."""

    by: str
    units: int
    """Of which at least two replicates could be compared."""
    within: Interval
    """Mean over units of the similarity between replicates."""
    between: Interval
    """Mean over units of the similarity between their replicates and those of other units of the layer."""
    gap: Interval
    """`within` minus `between`, paired by unit."""
    identified: Interval
    """Mean over units of the share of replicates whose most similar claim is about the same unit, among the other
    replicates and one claim about each of at most _MAX_OTHERS other units. Equally similar claims share."""
    chance: float
    """Expected value of `identified` for random claims; NaN if no unit could be compared with others."""
    by_unit: Mapping[Unit, float]


def agreement(claims: Sequence[Claim], similarity: ClaimSimilarity, resamples: int) -> Agreement | None:
    """Measures how similar the claims of replicates are. Returns None if no unit has several."""
    replicates: dict[Unit, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda claim: (claim.unit, claim.replicate)):
        replicates[claim.unit].append(claim)
    repeated = {unit: members for unit, members in replicates.items() if len(members) > 1}
    if not repeated:
        return None
    own = {unit: list(combinations(members, 2)) for unit, members in repeated.items()}
    near = _next_units(repeated)
    foreign = {unit: _foreign_pairs(unit, near[unit], repeated) for unit in repeated}
    lookup = _compare_once([pair for pairs in (*own.values(), *foreign.values()) for pair in pairs], similarity)
    within, between = _means(own, lookup), _means(foreign, lookup)
    identified = {unit: _identified(unit, near[unit], repeated, lookup) for unit in between}
    chances = [_chance(len(repeated[unit]) - 1, len(near[unit])) for unit in between]
    return Agreement(
        by=similarity.name,
        units=len(within),
        within=_over_units(within, resamples),
        between=_over_units(between, resamples),
        gap=_over_units({unit: within[unit] - between[unit] for unit in within.keys() & between.keys()}, resamples),
        identified=_over_units(identified, resamples),
        chance=float(np.mean(chances)) if chances else float("nan"),
        by_unit=within,
    )


def _chance(own: int, others: int) -> float:
    # The probability that the largest of all similarities is one of those to the own unit.
    return own / (own + others)


def _next_units(units: Iterable[Unit]) -> dict[Unit, list[Unit]]:
    """Returns for each unit the next _MAX_OTHERS units of its layer, in cyclic order of their indices."""
    near: dict[Unit, list[Unit]] = {}
    for _, group in groupby(sorted(units), lambda unit: (unit.target, unit.layer)):
        layer = list(group)
        near |= {unit: [*layer[n + 1 :], *layer[:n]][:_MAX_OTHERS] for n, unit in enumerate(layer)}
    return near


SimilarityLookup = Callable[[Claim, Claim], float | None]


def _compare_once(pairs: Sequence[ClaimPair], similarity: ClaimSimilarity) -> SimilarityLookup:
    distinct = list(dict.fromkeys(pairs))
    known = dict(zip(distinct, similarity.compare(distinct), strict=True))
    return lambda first, second: known.get((first, second), known.get((second, first)))


def _means(pairs: Mapping[Unit, Sequence[ClaimPair]], lookup: SimilarityLookup) -> dict[Unit, float]:
    values = {unit: [v for pair in members if (v := lookup(*pair)) is not None] for unit, members in pairs.items()}
    return {unit: float(np.mean(each)) for unit, each in values.items() if each}


def _foreign_pairs(unit: Unit, others: Sequence[Unit], replicates: Mapping[Unit, Sequence[Claim]]) -> list[ClaimPair]:
    """Pairs every replicate of the unit with one replicate of each of the others."""
    return [
        (own, replicates[other][number % len(replicates[other])])
        for other in others
        for number, own in enumerate(replicates[unit])
    ]


def _identified(
    unit: Unit, near: Sequence[Unit], replicates: Mapping[Unit, Sequence[Claim]], lookup: SimilarityLookup
) -> float:
    """Returns the share of replicates that are most similar to one of their own unit. If n of the own and m other
    claims share the largest similarity, a replicate counts n / (n + m).
    """
    foreign: dict[int, list[Claim]] = defaultdict(list)
    for own, other in _foreign_pairs(unit, near, replicates):
        foreign[own.replicate].append(other)
    hits: list[float] = []
    for number, claim in enumerate(replicates[unit]):
        own = [lookup(claim, other) or 0.0 for n, other in enumerate(replicates[unit]) if n != number]
        others = [lookup(claim, other) or 0.0 for other in foreign[claim.replicate]]
        largest = max([*own, *others])
        hits.append(own.count(largest) / (own.count(largest) + others.count(largest)))
    return float(np.mean(hits))


def _over_units(values: Mapping[Unit, float], resamples: int) -> Interval:
    return bootstrap.pooled([bootstrap.constant(str(unit), value, resamples) for unit, value in values.items()])
