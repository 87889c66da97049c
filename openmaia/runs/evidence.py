"""Evidence for an agent's answer: requirements checked against recorded tool calls, and the confirmation of its labels.

Neither relies on what the agent says of itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from openmaia.core.images import EncodedImage
from openmaia.core.services import ServiceUsage


class CheckState(StrEnum):
    """Whether an investigation meets one requirement of its task."""

    MET = "met"
    MISSING = "missing"
    UNVERIFIED = "unverified"
    """The requirement cannot be checked, because no tool call names the hypothesis that it tests, or the answer does
    not list the hypotheses that survive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCheck:
    """The result of checking one requirement of the evidence rule."""

    what: str
    """For example `experiments` or `controls`."""
    wanted: int
    found: int
    """Images and controls are counted for each hypothesis that the answer keeps, and this is the lowest of these
    counts."""
    state: CheckState
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisEvidence:
    """What was measured for a hypothesis that the answer keeps.

    The agent names the hypothesis of an image in its tool calls. A negative control of a hypothesis is an image that
    should not excite the unit if the hypothesis is true.
    """

    hypothesis: str
    images: int
    """Number of different images."""
    controls: int
    """Number of different negative controls."""
    mean: float | None
    """Mean activation, None without images."""
    control_mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Whether an investigation meets the requirements of its task, and what was measured in it."""

    checks: tuple[EvidenceCheck, ...] = ()
    tested: tuple[HypothesisEvidence, ...] = ()
    sent_back: int = 0
    """Number of answers that were sent back."""

    @property
    def state(self) -> str:
        """The worst of the checks' states: MISSING, then UNVERIFIED, then MET. Empty if nothing was required."""
        states = {check.state for check in self.checks}
        order = (CheckState.MISSING, CheckState.UNVERIFIED, CheckState.MET)
        return next((state.value for state in order if state in states), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationSample:
    """A measured image of a label of the answer, or of a near miss."""

    label: str
    """The label that the image shows or narrowly misses."""
    prompt: str
    near_miss: str = ""
    """What a near miss shows instead of the label, else ""."""
    control: str = ""
    """How a near miss was chosen, in words, else ""."""
    seed: int
    digest: str
    """Key of the image in `Confirmation.images`."""
    activation: float
    percentile: float | None = None
    """Share of dataset images, in percent, that excite the unit less. None if unknown, as with imported exemplars."""
    missing_terms: tuple[str, ...] = ()
    """Terms of the prompt that the generator says it could not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The unit's activations on images of the contrasts that test the labels of an answer."""

    samples: tuple[ConfirmationSample, ...]
    spent: dict[str, ServiceUsage] = field(default_factory=dict[str, ServiceUsage])
    """By service, such as "generator"."""
    images: dict[str, EncodedImage] = field(default_factory=dict[str, EncodedImage])
    """By digest."""

    def of(self, label: str | None = None) -> tuple[list[float], list[float]]:
        """Returns the activations on images of a label (None: of all), and on its near misses, without images with
        `missing_terms`."""
        drawn = [s for s in self.samples if not s.missing_terms and label in (None, s.label)]
        return [s.activation for s in drawn if not s.near_miss], [s.activation for s in drawn if s.near_miss]

    @property
    def labels(self) -> tuple[str, ...]:
        """The tested labels, each once."""
        return tuple(dict.fromkeys(sample.label for sample in self.samples))

    def auc(self, label: str | None = None) -> float | None:
        """Returns the AUC of the images of a label (None: of all) against its near misses; None if either kind has no
        image.
        """
        return rank_auc(*self.of(label))

    @property
    def worst(self) -> tuple[str, float] | None:
        """The label with the lowest AUC, and this AUC. None if no AUC is known."""
        known = [(auc, label) for label in self.labels if (auc := self.auc(label)) is not None]
        return (min(known)[1], min(known)[0]) if known else None


class Fault(StrEnum):
    """How a label fails the loop's own test."""

    IMAGES = "images"
    """Its images excite the unit no more than dataset images do."""
    NEAR_MISSES = "near_misses"
    """Its near misses excite the unit as much as its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTest:
    """The confirmation of an answer that failed and sent the answer back: the end of one round."""

    confirmation: Confirmation
    faults: dict[str, Fault]
    """By label that failed. The other labels of `confirmation` passed."""
    seconds: float
    """Wall-clock time of the test."""


def rank_auc(own: Sequence[float], others: Sequence[float]) -> float | None:
    """Returns how often a value of `own` exceeds one of `others`; None if either is empty.

    Ties count half (Hanley and McNeil 1982).
    """
    if not own or not others:
        return None
    pairs = np.subtract.outer(np.asarray(own), np.asarray(others))
    return float(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def to_json(value: Evidence | Confirmation | None) -> dict[str, Any] | None:
    """Converts evidence or a confirmation to JSON values, without images. Returns None for None."""
    if value is None:
        return None
    if isinstance(value, Confirmation):
        value = replace(value, images={})
    return {name: part for name, part in asdict(value).items() if name != "images"}


def restore_evidence(values: Mapping[str, Any]) -> Evidence:
    """Restores what `to_json` made of evidence."""
    checks = (EvidenceCheck(**check | {"state": CheckState(check["state"])}) for check in values["checks"])
    tested = (HypothesisEvidence(**hypothesis) for hypothesis in values["tested"])
    return Evidence(checks=tuple(checks), tested=tuple(tested), sent_back=values["sent_back"])


def restore_confirmation(values: Mapping[str, Any], images: dict[str, EncodedImage]) -> Confirmation:
    """Restores what `to_json` made of a confirmation. `images` are its images by digest."""
    samples = (
        ConfirmationSample(**sample | {"missing_terms": tuple(sample["missing_terms"])}) for sample in values["samples"]
    )
    spent = {service: ServiceUsage(**usage) for service, usage in values["spent"].items()}
    return Confirmation(samples=tuple(samples), spent=spent, images=images)


def failed_test_to_json(test: FailedTest) -> dict[str, Any]:
    """Converts a failed test to JSON values, without images."""
    return {"confirmation": to_json(test.confirmation), "faults": test.faults, "seconds": test.seconds}


def restore_failed_test(values: Mapping[str, Any], images: dict[str, EncodedImage]) -> FailedTest:
    """Restores what `failed_test_to_json` made of a failed test. `images` are its images by digest."""
    return FailedTest(
        confirmation=restore_confirmation(values["confirmation"], images),
        faults={label: Fault(fault) for label, fault in values["faults"].items()},
        seconds=values["seconds"],
    )
