"""What an answer rests on, and the loop's own test of it, as the page of a unit shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmaia.images import Picture
from openmaia.report.scored import SIDE, Tested
from openmaia.report.thumbnails import Thumbnails
from openmaia.store.evidence import Confirmation, Evidence, Shot
from openmaia.store.records import Record

WORDS = {"met": "met", "missing": "not met", "unverified": "cannot be checked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """pairs: an image of a label, and the near miss that was drawn from the same seed. by_label: (label, AUC against its
    near misses, None where they could not be drawn)."""

    evidence: Evidence
    auc: float | None = None
    by_label: tuple[tuple[str, float | None], ...] = ()
    pairs: tuple[tuple[Tested, Tested], ...] = ()

    @property
    def verdict(self) -> str:
        return WORDS.get(self.evidence.state, "")

    @property
    def is_empty(self) -> bool:
        return not (self.evidence.checks or self.evidence.tested or self.pairs)


def shown(record: Record, thumbnails: Thumbnails) -> Shown:
    found = record.confirmation
    if found is None:
        return Shown(evidence=record.evidence)
    by_label = tuple((label, found.auc(label)) for label in found.labels)
    return Shown(evidence=record.evidence, auc=found.auc(), by_label=by_label, pairs=_pairs(found, thumbnails))


def _pairs(found: Confirmation, thumbnails: Thumbnails) -> tuple[tuple[Tested, Tested], ...]:
    values = [shot.activation for shot in found.shots]
    low, span = min(values, default=0.0), (max(values, default=0.0) - min(values, default=0.0)) or 1.0
    made = [_tested(shot, found.pictures, thumbnails, (shot.activation - low) / span) for shot in found.shots]
    return _two_by_two(made)


def _two_by_two(made: Sequence[Tested]) -> tuple[tuple[Tested, Tested], ...]:
    return tuple(zip(made[::2], made[1::2], strict=True))


def _tested(shot: Shot, pictures: Mapping[str, Picture], thumbnails: Thumbnails, height: float) -> Tested:
    said = f"near miss: {shot.near_miss} ({shot.control})" if shot.near_miss else ""
    return Tested(
        uri=thumbnails.uri(pictures.get(shot.digest), SIDE),
        label=shot.label,
        prompt=shot.prompt,
        undrawn=shot.undrawn,
        verdict=said or f"percentile {shot.percentile:.0f}",
        activation=shot.activation,
        height=height,
    )
