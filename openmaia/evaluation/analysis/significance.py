"""Computes the p-values of all descriptions of a run, and how often wrong descriptions are "supported" by the same
rule: those of other units ("shuffled"), and random words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.core.errors import StoreError
from openmaia.core.typed import find_mistyped
from openmaia.evaluation.analysis import permutation
from openmaia.evaluation.analysis.permutation import EffectTable
from openmaia.evaluation.analysis.statistics import adjust_p_values, wilson
from openmaia.evaluation.analysis.verdict import LEVEL, Verdict, judge
from openmaia.evaluation.claims import Claim, Sharing
from openmaia.evaluation.compared import MAX_PARTNERS, Evaluation, Partners
from openmaia.evaluation.scores import control_scores
from openmaia.evaluation.storage import StoredTrials, compute_stamp
from openmaia.evaluation.trials import Trial
from openmaia.runs import tables
from openmaia.runs.results import SIGNIFICANCE, SIGNIFICANCE_SCHEMA, fingerprint
from openmaia.runs.run import EVALUATION, InvestigationId, Run

OWN, SHUFFLED, RANDOM = "own descriptions", "shuffled descriptions", "random words"
"""The descriptions with which a unit is tested: those that were made for it, those of other units, and random words."""

_NO_UNIT = -1
"""The index of the described unit of random words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Significance:
    """The p-values of a run's tested descriptions, and how often descriptions are supported."""

    p: Mapping[Claim, float]
    q: Mapping[Claim, float]
    """p adjusted over all claims (Benjamini and Hochberg)."""
    null: Mapping[Claim, int]
    """Values in the null distribution of the claim's layer."""
    supported: Mapping[str, tuple[float, float, float]]
    """For each of OWN, SHUFFLED and RANDOM, if there are such descriptions, the share of units whose description is
    supported, and both ends of its Wilson interval over units. The shares of wrong descriptions are means over several
    assignments of descriptions to units."""
    passed: Sequence[tuple[Claim, Claim]]
    """The pairs behind the share of SHUFFLED: the claim of a unit, and the one of another unit that is supported for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A unit, identified by its own claim, and a description that is tested for it."""

    claim: Claim
    described: Claim | int
    """A claim, or the place of a trial among those of random words of the layer."""
    p: float
    null: int = 0


_Assignments = dict[str, list[list[_Pair]]]
"""For each of OWN, SHUFFLED and RANDOM, lists of pairs that each assign descriptions to all units."""


def compute_significance(
    trials: Iterable[Trial],
    read: Callable[[Claim], Trial],
    words: Callable[[str], Sequence[Trial]],
    wrong: int = MAX_PARTNERS,
    sharing: Sharing = "label",
    controls: Mapping[InvestigationId, Mapping[str, Any]] | None = None,
) -> Significance:
    """Computes the p-values of all tested descriptions, and the shares of supported ones.

    Args:
        trials: All trials of the run. Those of the same layer have to be adjacent.
        read: Reads a trial again, because trials are not kept in memory.
        words: Returns the trials of random words of a layer.
        wrong: Wrong descriptions of each kind that a unit is given, at most.
        controls: Results of `control_scores` for descriptions and their own units, as far as they are known.
    """
    assignments: _Assignments = {
        OWN: [[]],
        SHUFFLED: [[] for _ in range(wrong)],
        RANDOM: [[] for _ in range(wrong)],
    }
    tested = (trial for trial in trials if trial.outcome == "tested")
    for (_, layer), group in groupby(tested, lambda trial: (trial.claim.unit.target, trial.claim.unit.layer)):
        _add_layer(group, words(layer), assignments, sharing)
    partners = Partners((pair.claim for pair in assignments[OWN][0]), sharing)
    q = {pair.claim: value for pair, value in _adjusted(assignments[OWN][0])}

    def compare(pair: _Pair) -> Mapping[str, Any]:
        described, unit = pair.described, pair.claim.unit
        trial = words(unit.layer)[described] if isinstance(described, int) else read(described)
        others = tuple(read(each) for each in partners.nearest(pair.claim) if each != described)
        return control_scores(Evaluation(trial=trial, others=others, unit=unit.index))

    def is_supported(pair: _Pair, q: float) -> bool:
        if q > LEVEL:
            return False
        known = (controls or {}).get(pair.claim.investigation) if pair.described == pair.claim else None
        scores = {"outcome": "tested", "controls": compare(pair) if known is None else known, "p": pair.p, "q": q}
        return judge("answer", scores).verdict is Verdict.SUPPORTED

    supported: dict[str, tuple[float, float, float]] = {}
    passed: list[tuple[Claim, Claim]] = []
    for name, several in assignments.items():
        given = [pairs for pairs in several if pairs]
        passing = [[pair for pair, q in _adjusted(pairs) if is_supported(pair, q)] for pairs in given]
        if given:
            share = float(np.mean([len(some) / len(pairs) for some, pairs in zip(passing, given, strict=True)]))
            supported[name] = (share, *wilson(share, len({pair.claim.unit for pair in given[0]})))
        if name == SHUFFLED:
            both = [(pair.claim, pair.described) for pairs in passing for pair in pairs]
            passed = [(claim, other) for claim, other in both if isinstance(other, Claim)]
    null = {pair.claim: pair.null for pair in assignments[OWN][0]}
    p = {pair.claim: pair.p for pair in assignments[OWN][0]}
    return Significance(p=p, q=q, null=null, supported=supported, passed=passed)


def _add_layer(trials: Iterable[Trial], words: Sequence[Trial], assignments: _Assignments, sharing: Sharing) -> None:
    """Adds the pairs of one layer, with their p-values, to all assignments."""
    claims: list[Claim] = []
    columns: list[npt.NDArray[np.float32]] = []
    images: list[tuple[int, int]] = []

    def add(trial: Trial) -> None:
        columns.append(_effects(trial))
        images.append((len(trial.rows("positive", verified=True)), len(trial.rows("neutral", verified=True))))

    for trial in trials:
        claims.append(trial.claim)
        add(trial)
    for word in words:
        add(word)
    described = [*claims, *(each.claim for each in words)]
    units = sorted({claim.unit.index for claim in claims})
    is_null = _null_pairs(units, claims, described, sharing)
    values = np.stack(columns, axis=1)[units].astype(np.float64)
    p = permutation.p_values(EffectTable(values=values, is_null=is_null, images=np.array(images, dtype=np.int64)))
    partners = Partners(claims, sharing)
    null = int(is_null.sum())
    row = {index: number for number, index in enumerate(units)}
    column = {claim: number for number, claim in enumerate(claims)}
    for number, claim in enumerate(claims):
        own, wrong = p[row[claim.unit.index]], is_null[row[claim.unit.index]]
        assignments[OWN][0].append(_Pair(claim=claim, described=claim, p=float(own[number]), null=null))
        others = (other for other in partners.of(claim) if wrong[column[other]])
        for pairs, other in zip(assignments[SHUFFLED], others, strict=False):
            pairs.append(_Pair(claim=claim, described=other, p=float(own[column[other]])))
        numbers = [(number + turn) % len(words) for turn in range(len(words))]
        for pairs, word in zip(assignments[RANDOM], [w for w in numbers if wrong[len(claims) + w]], strict=False):
            pairs.append(_Pair(claim=claim, described=word, p=float(own[len(claims) + word])))


def _null_pairs(
    units: Sequence[int], claims: Sequence[Claim], described: Sequence[Claim], sharing: Sharing
) -> npt.NDArray[np.bool_]:
    """Returns whether each description, first the claims, then random words, is a wrong one of each unit: not made for
    it, and like none of its own, (units, descriptions).
    """
    keys = [claim.keys(sharing) for claim in described]
    number = {key: row for row, key in enumerate(sorted(frozenset[str]().union(*keys)))}
    has_key = np.zeros((len(described), len(number)), dtype=bool)
    for row, own in enumerate(keys):
        has_key[row, [number[key] for key in own]] = True
    owners = np.array([claim.unit.index for claim in claims] + [_NO_UNIT] * (len(described) - len(claims)))

    def wrong(unit: int) -> npt.NDArray[np.bool_]:
        right = has_key[owners == unit].any(axis=0)
        return (owners != unit) & ~has_key[:, right].any(axis=1)

    return np.stack([wrong(unit) for unit in units])


def _effects(trial: Trial) -> npt.NDArray[np.float32]:
    positive, neutral = (trial.rows(role, verified=True) for role in ("positive", "neutral"))
    return permutation.effects(trial.matrix[positive], trial.matrix[neutral]).astype(np.float32)


def _adjusted(pairs: Sequence[_Pair]) -> Iterator[tuple[_Pair, float]]:
    return zip(pairs, adjust_p_values([pair.p for pair in pairs]), strict=True)


def write_significance(run: Run) -> None:
    """Computes and stores the p-values of all evaluated descriptions of a run, with `Significance.supported`."""
    stored = StoredTrials(run)
    controls: dict[InvestigationId, Mapping[str, Any]] = {}
    fingerprints: dict[InvestigationId, str] = {}
    for each, header in run.evaluation_headers(sorted(run.artifacts(EVALUATION))):
        controls[each], fingerprints[each] = header["controls"], fingerprint(header)
    result = compute_significance(
        stored,
        lambda claim: stored.cached(claim.investigation),
        stored.words,
        sharing=stored.sharing,
        controls=controls,
    )
    rows = [
        {
            "target": claim.unit.target,
            "layer": claim.unit.layer,
            "index": claim.unit.index,
            "replicate": claim.replicate,
            "p": result.p[claim],
            "q": result.q[claim],
            "null": result.null[claim],
            "evaluation": fingerprints[claim.investigation],
        }
        for claim in result.p
        if claim.investigation in fingerprints
    ]
    header = {"stamp": compute_stamp(run, 0), "supported": {name: list(v) for name, v in result.supported.items()}}
    run.files.write(SIGNIFICANCE, tables.dump(rows, SIGNIFICANCE_SCHEMA, header))


def is_current(run: Run) -> bool:
    """Returns whether the p-values are stored, and no evaluation was added or changed after that."""
    return bool(_header(run))


def supported_shares(run: Run) -> dict[str, tuple[float, float, float]]:
    """Reads `Significance.supported`; empty if it is missing, damaged, or older than the run's evaluations."""
    return {name: (share, low, high) for name, (share, low, high) in _header(run).get("supported", {}).items()}


def _header(run: Run) -> dict[str, Any]:
    """Returns what is stored beside the p-values; empty without a current file."""
    data = run.files.read(SIGNIFICANCE)
    try:
        header = {} if data is None else tables.load(data, SIGNIFICANCE, schema=SIGNIFICANCE_SCHEMA)[1]
    except StoreError:
        return {}  # the next evaluation writes the file again
    is_readable = find_mistyped(header.get("supported"), dict[str, tuple[float, float, float]]) is None
    return header if is_readable and header.get("stamp") == compute_stamp(run, 0) else {}
