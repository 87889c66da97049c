"""Do two investigations of one unit say the same?

Agreement is compared between runs (replicates) of one unit and between units of one layer: labels that agree with each
other because they fit any unit would agree between units as well.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from scipy import optimize

from openmaia.evaluate import bootstrap
from openmaia.evaluate.asking import Asker, Malformed, Question, Unanswered, text
from openmaia.evaluate.bootstrap import Interval
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.truth import similarity, terms
from openmaia.tools.seeds import seed
from openmaia.units import Unit

Pair = tuple[Claim, Claim]

OTHERS = 4
"""Units of the layer with which the runs of a unit are compared."""


class Alike(Protocol):
    @property
    def name(self) -> str: ...

    def alike(self, pairs: Sequence[Pair]) -> list[float | None]:
        """How far the two of each pair say the same, from 0 to 1; None where nobody knows."""
        ...


class Words:
    """Labels matched one to one by the words they have in common (Jaccard index), over the larger number of labels. Two
    abstentions agree. Labels that mean the same in other words do not."""

    name = "words in common"

    def alike(self, pairs: Sequence[Pair]) -> list[float | None]:
        return [_matched(one, other) for one, other in pairs]


class Asked:
    """A language model that is asked whether two descriptions say the same."""

    def __init__(self, asker: Asker):
        self.name = f"judged by {asker.name}"
        self._asker = asker

    def alike(self, pairs: Sequence[Pair]) -> list[float | None]:
        questions = [_question(one, other) for one, other in pairs]
        found = self._asker.ask_all(questions, _yes)
        return [None if isinstance(answer, Unanswered) else answer for answer in found]


def _question(one: Claim, other: Claim) -> Question:
    words = text("same", one=_said(one), other=_said(other))
    return Question(parts=(words,), seed=seed(0, "evaluate", words, 0) >> 32)


def _said(claim: Claim) -> str:
    return "; ".join((claim.description, *claim.labels)) if not claim.is_abstention else "(nothing can be said)"


def _yes(answer: str) -> float:
    said = answer.strip().strip("*.\"'").casefold()
    if said not in ("yes", "no"):
        raise Malformed(f"yes or no was asked for, and {answer[:60]!r} came")
    return float(said == "yes")


def _matched(one: Claim, other: Claim) -> float:
    ours, theirs = ([terms(label) for label in dict.fromkeys(_labels(claim))] for claim in (one, other))
    if not ours or not theirs:
        return float(not ours and not theirs)
    like = np.array([[similarity(a, b) for b in theirs] for a in ours])
    rows, columns = optimize.linear_sum_assignment(like, maximize=True)
    return float(like[rows, columns].sum()) / max(len(ours), len(theirs))


def _labels(claim: Claim) -> Sequence[str]:
    return [label for label in claim.labels if label.strip()] or [claim.description][: not claim.is_abstention]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """by: who compared. within: mean over units of the agreement between runs of one unit; between: of runs of different
    units of a layer; gap: within minus between, unit by unit. identified: share of runs that agree most with another run
    of their own unit, chance: what guessing would reach. by_unit: within, for each unit."""

    by: str
    units: int
    within: Interval
    between: Interval
    gap: Interval
    identified: Interval
    chance: float
    by_unit: Mapping[Unit, float]


def agreement(claims: Sequence[Claim], by: Alike, resamples: int) -> Agreement | None:
    """None where no unit was investigated twice."""
    runs: dict[Unit, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda claim: (claim.unit, claim.replicate)):
        runs[claim.unit].append(claim)
    repeated = {unit: members for unit, members in runs.items() if len(members) > 1}
    if not repeated:
        return None
    own = {unit: list(combinations(members, 2)) for unit, members in repeated.items()}
    foreign = {unit: _foreign(unit, repeated) for unit in repeated}
    known = _known([pair for pairs in (*own.values(), *foreign.values()) for pair in pairs], by)

    def mean(pairs: Sequence[Pair]) -> float | None:
        values = [value for one, other in pairs if (value := known(one, other)) is not None]
        return float(np.mean(values)) if values else None

    within = {unit: value for unit, pairs in own.items() if (value := mean(pairs)) is not None}
    between = {unit: value for unit, pairs in foreign.items() if (value := mean(pairs)) is not None}
    found = {unit: _identified(unit, repeated, known) for unit in between}
    return Agreement(
        by=by.name,
        units=len(within),
        within=_over(within, resamples),
        between=_over(between, resamples),
        gap=_over({unit: within[unit] - between[unit] for unit in within.keys() & between.keys()}, resamples),
        identified=_over(found, resamples),
        chance=float(np.mean([1 / (1 + len(_others(unit, repeated))) for unit in between]))
        if between
        else float("nan"),
        by_unit=within,
    )


def _others(unit: Unit, runs: Mapping[Unit, Sequence[Claim]]) -> list[Unit]:
    """The next units of the layer by index, starting over at the end."""
    same = [one for one in sorted(runs) if (one.target, one.layer) == (unit.target, unit.layer)]
    at = same.index(unit)
    return (same[at + 1 :] + same[:at])[:OTHERS]


def _foreign(unit: Unit, runs: Mapping[Unit, Sequence[Claim]]) -> list[Pair]:
    """Every run of the unit with one run of each of the others."""
    return [
        (own, runs[other][at % len(runs[other])]) for other in _others(unit, runs) for at, own in enumerate(runs[unit])
    ]


Known = Callable[[Claim, Claim], float | None]


def _known(pairs: Sequence[Pair], by: Alike) -> Known:
    """Each pair is compared once."""
    distinct = list(dict.fromkeys(pairs))
    found = dict(zip(distinct, by.alike(distinct), strict=True))
    return lambda one, other: found.get((one, other), found.get((other, one)))


def _identified(unit: Unit, runs: Mapping[Unit, Sequence[Claim]], known: Known) -> float:
    """Share of the unit's runs for which another run of it agrees more than the runs of other units that they were
    compared with; k that tie for it count 1/k."""
    hits: list[float] = []
    foreign = dict(_by_run(_foreign(unit, runs)))
    for at, claim in enumerate(runs[unit]):
        own = max(known(claim, other) or 0.0 for n, other in enumerate(runs[unit]) if n != at)
        others = [known(claim, other) or 0.0 for other in foreign[claim.replicate]]
        hits.append(0.0 if any(value > own for value in others) else 1 / (1 + others.count(own)))
    return float(np.mean(hits))


def _by_run(pairs: Sequence[Pair]) -> dict[int, list[Claim]]:
    found: dict[int, list[Claim]] = defaultdict(list)
    for own, other in pairs:
        found[own.replicate].append(other)
    return found


def _over(values: Mapping[Unit, float], resamples: int) -> Interval:
    return bootstrap.pooled([bootstrap.constant(str(unit), value, resamples) for unit, value in values.items()])
