"""Evidence for an agent's answer: the requirements on its experiments, and the test of its labels on new images.

Neither relies on what the agent claims: requirements are checked against recorded tool calls, and the program itself
runs the test after the answer.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from openmaia.core.images import EncodedImage
from openmaia.core.services import ServiceUsage


class CheckState(StrEnum):
    """Whether the experiments of an investigation meet one requirement of its task, such as a minimum number."""

    MET = "met"
    MISSING = "missing"
    UNVERIFIED = "unverified"
    """The requirement cannot be checked, because no tool call names the hypothesis that it tests, or the answer does
    not list the hypotheses that survive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCheck:
    """The result of checking one requirement of the stopping rule, such as a minimum number of experiments."""

    what: str
    """Name of the requirement, for example `experiments` or `controls`."""
    wanted: int
    """The number that is required."""
    found: int
    """The number that was found in the investigation. Images and control images are counted for each hypothesis that
    the answer keeps, and this is the lowest of these counts."""
    state: CheckState
    detail: str = ""
    """The result of the check in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisEvidence:
    """The number of images that test one hypothesis, and the unit's mean activation on them.

    Only hypotheses that the agent's answer keeps are covered. In its tool calls, the agent names the hypothesis
    that an image tests. An image can also be a negative control of a hypothesis: it should not excite the unit if the
    hypothesis is true.
    """

    hypothesis: str
    images: int
    """Number of different images measured for the hypothesis."""
    controls: int
    """Number of different images measured as its negative controls."""
    mean: float | None
    """Mean activation of the images, None without images."""
    control_mean: float | None
    """Mean activation of the controls, None without controls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Whether the experiments of an investigation meet the requirements of its task, and what was measured in them."""

    checks: tuple[EvidenceCheck, ...] = ()
    """One result for each requirement of the task; empty if nothing was required."""
    tested: tuple[HypothesisEvidence, ...] = ()
    """The measurements for each hypothesis that the answer keeps."""
    sent_back: int = 0
    """Number of answers of the agent that were refused for lack of evidence."""

    @property
    def state(self) -> str:
        """The worst state among the requirements on the investigation's experiments. Empty if nothing was required.

        The states, from worst to best, are MISSING, UNVERIFIED and MET (see `CheckState`).
        """
        states = {check.state for check in self.checks}
        order = (CheckState.MISSING, CheckState.UNVERIFIED, CheckState.MET)
        return next((state.value for state in order if state in states), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationSample:
    """One measured image of the test that follows an agent's answer.

    It shows either a label of the answer, or a near miss of the label. A near miss is the scene of a label's image with
    one thing changed, so that the label does not describe it.
    """

    label: str
    """The label that the image tests, by showing what it names or by narrowly missing it."""
    prompt: str
    """The prompt from which the image was generated."""
    near_miss: str = ""
    """The thing that a near miss shows instead of the label, "" for an image of the label itself."""
    control: str = ""
    """How the thing that the near miss shows was chosen, in words. "" for an image of the label itself."""
    seed: int
    digest: str
    """Key of the image in `Confirmation.images`."""
    activation: float
    percentile: float | None = None
    """Share of dataset images, in percent, that excite the unit less. None if unknown, as with imported exemplars."""
    missing_terms: tuple[str, ...] = ()
    """Terms of the prompt that the image generator knows to be missing in the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The unit's activations on new images that test the labels of the agent's answer.

    A label is a short phrase for one thing to which the unit responds. Some images show a label. The others show a near
    miss: the scene of a label's image with one thing changed, so that the label does not describe it.
    """

    samples: tuple[ConfirmationSample, ...]
    spent: dict[str, ServiceUsage] = field(default_factory=dict[str, ServiceUsage])
    """Requests and computing time of the test by service, such as "generator"."""
    images: dict[str, EncodedImage] = field(default_factory=dict[str, EncodedImage])
    """The images of the samples by digest."""

    def of(self, label: str | None = None) -> tuple[list[float], list[float]]:
        """Returns two lists of activations: on images that show a label, and on its near misses.

        A near miss is the same scene without what the label names. Images that do not show all terms of the prompt from
        which they were generated (`missing_terms`) are excluded.

        Args:
            label: The label, or None for all labels.
        """
        drawn = [s for s in self.samples if not s.missing_terms and label in (None, s.label)]
        return [s.activation for s in drawn if not s.near_miss], [s.activation for s in drawn if s.near_miss]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the agent's answer that were tested on images, each once."""
        return tuple(dict.fromkeys(sample.label for sample in self.samples))

    def auc(self, label: str | None = None) -> float | None:
        """Returns the probability that an image of a label excites the unit more than an image of a near miss.

        A near miss is the same scene without what the label names. The probability is the area under the ROC curve;
        ties count half (Hanley and McNeil 1982). None if there are no images of the label, or no near misses.

        Args:
            label: The label, or None for all labels.
        """
        own, near = self.of(label)
        if not own or not near:
            return None
        pairs = np.subtract.outer(np.asarray(own), np.asarray(near))
        return float(((pairs > 0) + 0.5 * (pairs == 0)).mean())

    @property
    def worst(self) -> tuple[str, float] | None:
        """The label with the lowest AUC (see `auc`), and its AUC. None if no AUC is known."""
        known = [(auc, label) for label in self.labels if (auc := self.auc(label)) is not None]
        return (min(known)[1], min(known)[0]) if known else None


def plain(value: Evidence | Confirmation | None) -> dict[str, Any] | None:
    """Converts the evidence for an agent's answer, or the result of the test that follows it, to JSON values.

    The images of the test are left out. Returns None for None.
    """
    if value is None:
        return None
    if isinstance(value, Confirmation):
        value = replace(value, images={})
    return {name: part for name, part in asdict(value).items() if name != "images"}


def evidence_of(values: Mapping[str, Any]) -> Evidence:
    """Restores the evidence for an agent's answer from the JSON values that `plain` returned for it."""
    checks = (EvidenceCheck(**check | {"state": CheckState(check["state"])}) for check in values["checks"])
    tested = (HypothesisEvidence(**hypothesis) for hypothesis in values["tested"])
    return Evidence(checks=tuple(checks), tested=tuple(tested), sent_back=values["sent_back"])


def confirmation_of(values: Mapping[str, Any], images: dict[str, EncodedImage]) -> Confirmation:
    """Restores the result of the test that follows an agent's answer.

    Args:
        values: The JSON values that `plain` returned for the result.
        images: The test images by digest. They are not among the JSON values.
    """
    samples = (
        ConfirmationSample(**sample | {"missing_terms": tuple(sample["missing_terms"])}) for sample in values["samples"]
    )
    spent = {service: ServiceUsage(**usage) for service, usage in values["spent"].items()}
    return Confirmation(samples=tuple(samples), spent=spent, images=images)
