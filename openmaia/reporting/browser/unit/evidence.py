"""The section of a unit's page with the evidence for the answer."""

from dataclasses import dataclass

from openmaia.reporting.browser.unit.pictures import PagePictures
from openmaia.reporting.browser.unit.scored import ScoredImage, compute_share
from openmaia.runs.evidence import Confirmation, ConfirmationSample, Evidence
from openmaia.runs.records import Record

_STATES = {"met": "met", "missing": "not met", "unverified": "cannot be checked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """What the section shows."""

    evidence: Evidence
    auc: float | None = None
    """AUC of the images of all labels against their near misses; None if there are none of one kind."""
    by_label: tuple[tuple[str, float | None], ...] = ()
    """Each label with its AUC."""
    pairs: tuple[tuple[ScoredImage, ScoredImage], ...] = ()
    """Each image of a label with its near miss, generated with the same seed."""

    @property
    def verdict(self) -> str:
        """Whether the requirements are met, in words; empty if nothing was required."""
        return _STATES.get(self.evidence.state, "")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.evidence.checks or self.evidence.tested or self.pairs)


def make_evidence_view(record: Record, pictures: PagePictures) -> EvidenceView:
    """Prepares the evidence in a record for the page."""
    test = record.confirmation
    if test is None:
        return EvidenceView(evidence=record.evidence)
    by_label = tuple((label, test.auc(label)) for label in test.labels)
    return EvidenceView(evidence=record.evidence, auc=test.auc(), by_label=by_label, pairs=_pairs(test, pictures))


def _pairs(test: Confirmation, pictures: PagePictures) -> tuple[tuple[ScoredImage, ScoredImage], ...]:
    high = max((sample.activation for sample in test.samples), default=0.0)

    def tested(sample: ConfirmationSample) -> ScoredImage:
        near_miss = f"near miss: {sample.near_miss} ({sample.control})" if sample.near_miss else ""
        percentile = "" if sample.percentile is None else f"percentile {sample.percentile:.0f}"
        image = test.images.get(sample.digest)
        return ScoredImage(
            picture=pictures.picture(sample.digest, image.data if image else b""),
            label=sample.label,
            prompt=sample.prompt,
            missing_terms=sample.missing_terms,
            verdict=near_miss or percentile,
            activation=sample.activation,
            share=compute_share(sample.activation, high),
        )

    images = [tested(sample) for sample in test.samples]
    return tuple(zip(images[::2], images[1::2], strict=True))
