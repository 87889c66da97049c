"""The section of a unit's page with the evidence for the answer."""

from dataclasses import dataclass, replace

from openmaia.agent.evidence.states import HypothesisStanding, find_standings
from openmaia.analysis.rounds import Round, list_rounds
from openmaia.reporting.browser.unit.pictures import SMALL, Origin, PagePictures
from openmaia.reporting.browser.unit.scored import ScoredImage
from openmaia.runs.evidence import Confirmation, ConfirmationSample, Evidence, Fault
from openmaia.runs.records import Record

_STATES = {"met": "met", "missing": "not met", "unverified": "cannot be checked"}


_FAULTS = {
    Fault.IMAGES: "its images excite the unit no more than most of the dataset",
    Fault.NEAR_MISSES: "its near misses excite the unit as much",
}

ImagePairs = tuple[tuple[ScoredImage, ScoredImage], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """An answer that failed its test, and what came of it."""

    round: Round
    by_label: tuple[tuple[str, float | None, str], ...]
    """Each label with its AUC and why it failed; empty if it passed."""
    pairs: ImagePairs


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """What the section shows."""

    evidence: Evidence
    auc: float | None = None
    """AUC of the images of all labels against their near misses; None if there are none of one kind."""
    by_label: tuple[tuple[str, float | None], ...] = ()
    """Each label with its AUC."""
    pairs: ImagePairs = ()
    """Each image of a label with its near miss, generated with the same seed."""
    rounds: tuple[RoundView, ...] = ()
    standings: tuple[HypothesisStanding, ...] = ()
    """The last list of hypotheses; empty if no image was measured for one of them."""

    @property
    def verdict(self) -> str:
        """Whether the requirements are met, in words; empty if nothing was required."""
        return _STATES.get(self.evidence.state, "")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.evidence.checks or self.evidence.tested or self.pairs or self.rounds or self.standings)


def make_evidence_view(record: Record, pictures: PagePictures) -> EvidenceView:
    """Prepares the evidence in a record for the page."""
    test = record.confirmation
    view = EvidenceView(evidence=record.evidence)
    if test is not None:
        by_label = tuple((label, test.auc(label)) for label in test.labels)
        view = replace(view, auc=test.auc(), by_label=by_label, pairs=_pairs(test, pictures))
    standings = tuple(find_standings(record.turns))
    if any(each.own or each.controls for each in standings):
        view = replace(view, standings=standings)
    # The test of the last answer comes first: its images are shown if not all fit.
    return replace(view, rounds=tuple(_round(each, pictures) for each in list_rounds(record)))


def _round(each: Round, pictures: PagePictures) -> RoundView:
    faults = {label: _FAULTS[fault] for label, fault in each.faults.items()}
    by_label = tuple((label, each.test.auc(label), faults.get(label, "")) for label in each.test.labels)
    return RoundView(round=each, by_label=by_label, pairs=_pairs(each.test, pictures))


def _pairs(test: Confirmation, pictures: PagePictures) -> ImagePairs:
    def tested(sample: ConfirmationSample) -> ScoredImage:
        near_miss = f"near miss: {sample.near_miss} ({sample.control})" if sample.near_miss else ""
        percentile = "" if sample.percentile is None else f"percentile {sample.percentile:.0f}"
        image = test.images.get(sample.digest)
        return ScoredImage(
            picture=pictures.picture(sample.digest, image.data if image else b"", side=SMALL, origin=Origin.DRAWN),
            label=sample.label,
            prompt=sample.prompt,
            missing_terms=sample.missing_terms,
            verdict=near_miss or percentile,
            activation=sample.activation,
        )

    images = [tested(sample) for sample in test.samples]
    return tuple(zip(images[::2], images[1::2], strict=True))
