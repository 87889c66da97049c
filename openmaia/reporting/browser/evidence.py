"""Prepares the section about evidence on the page of a unit.

It shows whether the agent's experiments meet the requirements for an answer, and the result of the test that the agent
loop itself makes of every answer: activations on new images of the labels and on near misses.
"""

from dataclasses import dataclass

from openmaia.reporting.browser.scored import SIDE, ScoredImage
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.runs.evidence import Confirmation, ConfirmationSample, Evidence
from openmaia.runs.records import Record

VERDICTS = {"met": "met", "missing": "not met", "unverified": "cannot be checked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """What the section about evidence shows."""

    evidence: Evidence
    auc: float | None = None
    """AUC of the images of all labels against their near misses; None if it is undefined."""
    by_label: tuple[tuple[str, float | None], ...] = ()
    """Each label with the AUC of its images against near misses: the same scenes with one thing changed, so that the
    label does not describe them. None if the AUC is undefined."""
    pairs: tuple[tuple[ScoredImage, ScoredImage], ...] = ()
    """The images of labels, each with its near miss, which is generated with the same seed."""

    @property
    def verdict(self) -> str:
        """Whether the requirements on the experiments are met, in words; empty if nothing was required."""
        return VERDICTS.get(self.evidence.state, "")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.evidence.checks or self.evidence.tested or self.pairs)


def evidence_view(record: Record, thumbnails: Thumbnails) -> EvidenceView:
    """Prepares the evidence of a record for the page of its unit."""
    test = record.confirmation
    if test is None:
        return EvidenceView(evidence=record.evidence)
    by_label = tuple((label, test.auc(label)) for label in test.labels)
    return EvidenceView(evidence=record.evidence, auc=test.auc(), by_label=by_label, pairs=_pairs(test, thumbnails))


def _pairs(test: Confirmation, thumbnails: Thumbnails) -> tuple[tuple[ScoredImage, ScoredImage], ...]:
    values = [sample.activation for sample in test.samples]
    low, high = min(values, default=0.0), max(values, default=0.0)

    def tested(sample: ConfirmationSample) -> ScoredImage:
        near_miss = f"near miss: {sample.near_miss} ({sample.control})" if sample.near_miss else ""
        percentile = "" if sample.percentile is None else f"percentile {sample.percentile:.0f}"
        return ScoredImage(
            uri=thumbnails.uri(test.images.get(sample.digest), SIDE),
            label=sample.label,
            prompt=sample.prompt,
            missing_terms=sample.missing_terms,
            verdict=near_miss or percentile,
            activation=sample.activation,
            height=(sample.activation - low) / ((high - low) or 1.0),
        )

    images = [tested(sample) for sample in test.samples]
    return tuple(zip(images[::2], images[1::2], strict=True))
