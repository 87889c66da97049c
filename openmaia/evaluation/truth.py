"""Compares labels with what units are known to respond to: synthetic units, and units that are defined by a formula.

The truth of a unit is a set of slots, each of which excites the unit on its own; a unit that needs two concepts
together has one slot that names both. A label hits a slot if the two mean the same, by one of two methods: they consist
of the same words (a synonym or a further word is a miss), or a language model decides. Labels and slots are matched one
to one. A label that joins alternatives by "or" counts as so many labels.

exact: every slot has a label, and no label is left over.
precision: the share of a unit's labels that hit a slot; undefined for an abstention.
recall: the share of a unit's slots that a label hits; 0 for an abstention.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from openmaia.core.errors import StoreError
from openmaia.core.typed import find_mistyped
from openmaia.core.units import OUTPUT, Unit
from openmaia.evaluation.analysis.agreement import ClaimSimilarity
from openmaia.evaluation.analysis.bootstrap import Interval, mean_interval, share_interval
from openmaia.evaluation.claims import Claim, read_claims
from openmaia.evaluation.scores import RESAMPLES
from openmaia.runs.run import InvestigationId, Run

TRUTH_FILE = "truth.json"

_OR = re.compile(r",? or ", re.IGNORECASE)


KnownTruths = Mapping[Unit, tuple[str, ...]]
"""The slots of each unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthMatch:
    """How the labels of one investigation match the slots of its unit, by one method of comparison."""

    unit: Unit
    replicate: int
    by: str
    labels: tuple[str, ...]
    """Alternatives apart, without repetitions; empty for an abstention."""
    truth: tuple[str, ...]
    hits: int
    """Labels that hit a slot, in the one-to-one matching with the most hits."""
    unknown: int
    """Pairs of a label and a slot that could not be compared. They count as different."""

    @property
    def exact(self) -> bool:
        """See the module docstring."""
        return self.hits == len(self.labels) == len(self.truth)

    @property
    def precision(self) -> float | None:
        """None for an abstention."""
        return self.hits / len(self.labels) if self.labels else None

    @property
    def recall(self) -> float:
        """See the module docstring."""
        return self.hits / len(self.truth)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthScores:
    """Means over units, by one method of comparison."""

    by: str
    units: int
    """Replicates of a unit are averaged."""
    exact: Interval
    """Share of units, with Wilson's interval."""
    precision: Interval
    """Over the units with labels; NaN if there are none."""
    recall: Interval
    unknown: int


def match_truth(
    claims: Sequence[Claim], truths: KnownTruths, similarities: Sequence[ClaimSimilarity]
) -> list[TruthMatch]:
    """Matches the labels of claims about units in `truths` with their slots, one method of comparison after the other."""
    known = [claim for claim in claims if truths.get(claim.unit)]
    pairs = [
        (Claim(unit=claim.unit, labels=(label,)), Claim(unit=claim.unit, labels=(slot,)))
        for claim in known
        for label in _labels(claim, truths[claim.unit])
        for slot in truths[claim.unit]
    ]
    matches: list[TruthMatch] = []
    for similarity in similarities:
        answers = iter(similarity.compare(pairs))
        matches += [_match(claim, truths[claim.unit], similarity.name, answers) for claim in known]
    return matches


def _labels(claim: Claim, truth: Sequence[str]) -> tuple[str, ...]:
    if claim.is_abstention:
        return ()
    several = ([text] if text in truth else _alternatives(text) for text in claim.statements)
    return tuple(dict.fromkeys(each for alternatives in several for each in alternatives))


def _alternatives(label: str) -> list[str]:
    """Returns what a label names of which each alone is enough. An adjective of several ("a red or blue ball") stays with one."""
    first, *rest = _OR.split(label)
    return [*first.removeprefix("either ").split(", "), *rest] if rest else [label]


def _match(claim: Claim, truth: tuple[str, ...], by: str, answers: Iterator[float | None]) -> TruthMatch:
    from scipy import optimize  # as in `WordOverlap`

    labels = _labels(claim, truth)
    given: list[list[float | None]] = [[next(answers) for _ in truth] for _ in labels]
    hits = np.array([[answer == 1 for answer in row] for row in given]).reshape(len(labels), len(truth))
    rows, columns = optimize.linear_sum_assignment(hits, maximize=True)
    return TruthMatch(
        unit=claim.unit,
        replicate=claim.replicate,
        by=by,
        labels=labels,
        truth=truth,
        hits=int(hits[rows, columns].sum()),
        unknown=sum(answer is None for row in given for answer in row),
    )


def truth_scores(matches: Sequence[TruthMatch], resamples: int = RESAMPLES) -> list[TruthScores]:
    """Averages matches over units, for each method of comparison."""
    return [
        _scores(by, [each for each in matches if each.by == by], resamples)
        for by in dict.fromkeys(each.by for each in matches)
    ]


def _scores(by: str, matches: Sequence[TruthMatch], resamples: int) -> TruthScores:
    units: dict[Unit, list[TruthMatch]] = {}
    for match in matches:
        units.setdefault(match.unit, []).append(match)
    exact = float(np.mean([np.mean([each.exact for each in group]) for group in units.values()]))
    precisions = [[each.precision for each in group if each.precision is not None] for group in units.values()]
    recalls = [float(np.mean([each.recall for each in group])) for group in units.values()]
    return TruthScores(
        by=by,
        units=len(units),
        exact=share_interval(exact, len(units)),
        precision=mean_interval([float(np.mean(each)) for each in precisions if each], resamples),
        recall=mean_interval(recalls, resamples),
        unknown=sum(each.unknown for each in matches),
    )


def write_truth(run: Run, matches: Sequence[TruthMatch]) -> None:
    """Stores the result of `match_truth` in the run directory."""
    run.files.write(
        TRUTH_FILE, json.dumps([asdict(each) for each in matches], ensure_ascii=False).encode(errors="replace")
    )


def has_truth(run: Run) -> bool:
    """Returns whether `write_truth` has stored a file, which may contain no matches."""
    return run.files.exists(TRUTH_FILE)


def class_names(run: Run) -> dict[Unit, str]:
    """Returns the names of the class outputs among the units of known truth."""
    return {each.unit: each.truth[0] for each in read_truth(run) if each.unit.layer == OUTPUT and len(each.truth) == 1}


def read_truth(run: Run) -> list[TruthMatch]:
    """Reads what `write_truth` stored, without matches of other labels than those of the records. Empty if the file is
    missing or damaged.
    """
    try:
        stored: Any = run.files.read_json(TRUTH_FILE) or []
    except StoreError:
        return []
    if find_mistyped(stored, list[TruthMatch]) is not None:
        return []
    claims = {claim.investigation: claim for claim in read_claims(run)} if stored else {}
    matches = [(_restored(each), claims.get(_investigation(each))) for each in stored]
    return [each for each, claim in matches if claim is not None and _labels(claim, each.truth) == each.labels]


def _investigation(stored: dict[str, Any]) -> InvestigationId:
    return InvestigationId(unit=Unit(**stored["unit"]), replicate=stored["replicate"])


def _restored(stored: dict[str, Any]) -> TruthMatch:
    unit, labels, truth = Unit(**stored["unit"]), tuple(stored["labels"]), tuple(stored["truth"])
    fields: dict[str, Any] = stored | {"unit": unit, "labels": labels, "truth": truth}
    return TruthMatch(**fields)
