"""The part of a test's header that other code may rely on: facts with their types, metrics by any names, and controls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from openmaia.core.typed import find_mistyped


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionFacts:
    """What was judged for detection and fuzzing on photographs."""

    judge: str
    judged: int
    """Photographs."""
    known: int
    """Photographs with a known verdict."""
    shown: int
    """Photographs that show a label."""
    fuzzed: int | None
    """Parts with a known verdict; None without fuzzing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SightingFacts:
    """See `openmaia.evaluation.trials.Sightings`."""

    shown: int
    """Top exemplars that show a label."""
    known: int
    """Top exemplars of which it is known; 0 if these are not more than half."""
    photographs: list[int]
    by: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """Facts of a test, which say how it was made and are no metrics."""

    outcome: str
    """See `openmaia.evaluation.trials.Trial`, also for `cause`, `standard`, `looks` and `miss`."""
    cause: str
    protocol: str
    writer: str
    generator: str
    method: str
    standard: str
    looks: list[int]
    miss: float
    images: int
    """Positive and neutral ones."""
    n: tuple[int, int]
    """The numbers of positive and of neutral images that count."""
    shown: float | None
    """The share of positive images that were verified."""
    failed_images: int
    verified_by: list[str]
    photographs_checked_by: list[str]
    units: int | None
    """Units of the layer; None if nothing was tested."""
    others: list[int]
    """The units whose descriptions are compared."""
    overlap_exact: float | None
    overlap_words: float | None
    by_label: dict[str, float | None]
    """For each label, how well its images excite the unit."""
    worst_label: str | None
    detection: DetectionFacts | None
    sightings: SightingFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredControl:
    """The comparison with one kind of control images (`openmaia.evaluation.scores.control_scores`)."""

    auc: float
    low: float
    high: float
    n: tuple[int, int]
    prompts: tuple[int, int]
    means: tuple[float, float]


_KINDS: Mapping[str, Any] = {
    "facts": TrialFacts,
    # A version with another set of metrics may have written them, so that no name is required.
    "metrics": dict[str, float | None],
    "controls": dict[str, StoredControl],
}


def wrong_score(header: Mapping[str, Any]) -> str | None:
    """Returns the first key of an evaluation's header that lacks a score or fact, or has it with a wrong type, such as
    "facts.n"; None if there is none.
    """
    # A network whose outputs are no numbers has scores that are none.
    for key, kind in _KINDS.items():
        place = find_mistyped(header[key], kind, finite=False) if key in header else ""
        if place is not None:
            return key + place
    return None


def stored_scores(header: Mapping[str, Any]) -> dict[str, Any]:
    """Returns facts and metrics of an evaluation by name, and `controls`. Metrics that were not computed are missing."""
    facts, metrics = (cast("dict[str, Any]", header[key]) for key in ("facts", "metrics"))
    return facts | metrics | {"controls": header["controls"]}
