"""A trial beside the trials of other units and of random words with which it is compared."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from openmaia.evaluation.analysis.bootstrap import ClusteredValues
from openmaia.evaluation.claims import Claim, Sharing
from openmaia.evaluation.trials import EXEMPLARS, Trial, own_deviations

MAX_PARTNERS = 4
"""Other units whose images serve as controls of a unit."""

GroupPair = tuple[ClusteredValues, ClusteredValues]
"""The activations of a unit on positive images, and on those with which they are compared."""

_EMPTY = ClusteredValues.of((), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A trial, and the trials of other units that it is compared with. Metrics are computed from it."""

    trial: Trial
    others: tuple[Trial, ...]
    """Their matrices contain the responses of this trial's unit to their images."""
    words: tuple[Trial, ...] = ()
    """The layer's trials of random words (`openmaia.evaluation.random_words`)."""
    unit: int | None = None
    """The index of the unit whose responses are compared; None: the described one."""

    @property
    def index(self) -> int:
        """The index of the unit whose responses are compared."""
        return self.trial.claim.unit.index if self.unit is None else self.unit

    @property
    def is_tested(self) -> bool:
        """Whether images of the description were made and show what it names."""
        return self.trial.outcome == "tested"

    def group(self, role: str, label: str = "") -> ClusteredValues:
        """Returns the standardised activations on the images of a role (`Stimulus.role`), without images that are known
        not to show what was requested; with `label` only those that test it. Empty unless the description was tested.
        """
        if not self.is_tested:
            return _EMPTY
        if self.index != self.trial.claim.unit.index:
            return _deviations(self.trial, role, self.index, label)
        rows = _shown(self.trial, role, label)
        return _clustered(self.trial, rows, own_deviations(self.trial)[rows])

    def stored(self, role: str) -> ClusteredValues:
        """Returns the same activations as `group`, in the precision of the trials' matrices: equal activations on images
        of two trials stay equal, as the AUC of one against the other needs.
        """
        return _deviations(self.trial, role, self.index) if self.is_tested else _EMPTY

    def raw(self, role: str) -> ClusteredValues:
        """Returns the same activations as `group`, not standardised. Always those of the described unit."""
        return raw_group(self.trial, role) if self.is_tested else _EMPTY

    def pair_of(self, other: Trial) -> GroupPair:
        """Returns the unit's standardised activations on the positive and on the neutral images of any trial of the
        layer.
        """
        return _deviations(other, "positive", self.index), _deviations(other, "neutral", self.index)

    def foreign(self) -> ClusteredValues:
        """Returns the unit's standardised activations on the positive images of `others`. Empty if the trial is
        standardised by its own images, because such trials are not on a common scale.
        """
        groups = [_deviations(each, "positive", self.index) for each in self.others]
        if self.trial.standard != EXEMPLARS:
            return _EMPTY
        return ClusteredValues.of(
            [value for group in groups for value in group.values], [name for group in groups for name in group.clusters]
        )


def raw_group(trial: Trial, role: str) -> ClusteredValues:
    """Returns the activations of the unit on the images of a role (`Stimulus.role`), not standardised, without images
    that are known not to show what was requested.
    """
    shown = [trial.stimuli[row] for row in trial.rows(role, verified=True)]
    return ClusteredValues.of([each.activation for each in shown], [each.cluster for each in shown])


def _deviations(trial: Trial, role: str, unit: int, label: str = "") -> ClusteredValues:
    rows = _shown(trial, role, label)
    return _clustered(trial, rows, trial.matrix[rows, unit] if rows else np.zeros(0))


def _shown(trial: Trial, role: str, label: str) -> list[int]:
    return [row for row in trial.rows(role, verified=True) if not label or trial.stimuli[row].label == label]


def _clustered(trial: Trial, rows: Sequence[int], values: npt.NDArray[np.floating]) -> ClusteredValues:
    return ClusteredValues.of(values.astype(np.float64).tolist(), [trial.stimuli[row].cluster for row in rows])


class Partners:
    """Finds the tested claims about other units whose images serve as controls of a claim."""

    def __init__(self, tested: Iterable[Claim], sharing: Sharing):
        self._sharing: Sharing = sharing
        groups: defaultdict[tuple[str, str, str, int], dict[int, Claim]] = defaultdict(dict)
        for claim in tested:
            groups[_group(claim)][claim.unit.index] = claim
        # Once for each claim: a layer has thousands.
        self._groups = {
            group: [(index, claim, claim.keys(sharing)) for index, claim in sorted(claims.items())]
            for group, claims in groups.items()
        }

    def of(self, claim: Claim) -> Iterator[Claim]:
        """Yields the claims of the same method and replicate about the other units of the layer, without claims that
        are alike, in cyclic order of the units after that of `claim`.
        """
        group, keys, own = self._groups.get(_group(claim), []), claim.keys(self._sharing), claim.unit.index
        start = bisect_right(group, own, key=lambda each: each[0])
        for place in range(start, start + len(group)):
            index, other, others = group[place % len(group)]
            if index != own and keys.isdisjoint(others):
                yield other

    def nearest(self, claim: Claim) -> list[Claim]:
        """Returns the first MAX_PARTNERS claims of `of`."""
        return list(islice(self.of(claim), MAX_PARTNERS))


def _group(claim: Claim) -> tuple[str, str, str, int]:
    return claim.unit.target, claim.unit.layer, claim.method, claim.replicate


def unlike(claim: Claim, words: Sequence[Trial], sharing: Sharing) -> tuple[Trial, ...]:
    """Returns the trials of random words that are wrong descriptions where a claim is right."""
    return tuple(each for each in words if not each.claim.is_like(claim, sharing))


def compare_trials(trials: Sequence[Trial], sharing: Sharing) -> list[Evaluation]:
    """Combines each trial with those of its partners (`Partners.nearest`), in the same order."""
    tested = {trial.claim: trial for trial in trials if trial.outcome == "tested"}
    partners = Partners(tested, sharing)
    return [
        Evaluation(trial=trial, others=tuple(tested[claim] for claim in partners.nearest(trial.claim)))
        for trial in trials
    ]
