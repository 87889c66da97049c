"""Trials: the images that test a claim, and the responses of the layer to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.core.images import EncodedImage
from openmaia.core.services import Generation, Generator, LayerProbe, Target
from openmaia.evaluation.analysis.overlap import PromptOverlap
from openmaia.evaluation.analysis.sequential import ERROR
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.judging.judges import ImageVerdict, Judge
from openmaia.evaluation.prompts import StimulusPrompt

DeviationMatrix = npt.NDArray[np.float16]

EXEMPLARS, CONTROLS = "exemplars", "controls"

CONSTANT = 1e-12
"""A unit whose SD is at most this counts as constant, because rounding errors alone can cause it."""

MAX_DEVIATION = 60_000.0
"""Standardised responses are clipped to this absolute value, which float16 can represent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerScale:
    """The activations of all units of a layer on the images of the dataset, (units,) each."""

    mean: FloatArray
    std: FloatArray
    top: FloatArray
    """Mean on the unit's top exemplars; NaN for a unit without any."""

    def top_deviation(self, unit: int) -> float | None:
        """Returns `top` of a unit in SD; None if it is unknown or the unit is constant."""
        if not self.std[unit] > CONSTANT or not np.isfinite(self.top[unit]):
            return None
        return float((self.top[unit] - self.mean[unit]) / self.std[unit])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """An image of a trial, and the activation of the claim's unit on it."""

    role: str
    """positive, neutral, unrelated or random (a photograph)."""
    label: str = ""
    """Empty if the image tests the whole description, and for control images."""
    prompt: str = ""
    """Empty for a photograph."""
    digest: str
    sources: tuple[str, ...] = ()
    """Digests of the dataset images whose pixels are in the image."""
    missing_terms: tuple[str, ...] = ()
    """Words of the prompt that the generator reports as missing."""
    shows: ImageVerdict = None
    """Whether the image is as requested: a positive image shows the label, a neutral one does not. None if unknown."""
    verified_by: str = ""
    """The generator or judge that checks images, even if `shows` is None; empty if nothing checks them."""
    data: bytes = b""
    """Lossless WebP; empty for control images, which many units share."""
    activation: float

    @property
    def cluster(self) -> str:
        """The cluster of the image in the bootstrap: its prompt, or the digest of a photograph."""
        return self.prompt or self.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """Which pictures of the dataset show a label of a claim."""

    exemplars: tuple[ImageVerdict, ...]
    """The strongest top exemplars of the unit, at most `openmaia.evaluation.sightings.TOP`."""
    photographs: tuple[int, int]
    """How many photographs of the test split, drawn at random, show a label, and of how many this is known."""
    by: tuple[str, ...]
    """Who says it of the exemplars: captions, or the name of a judge."""

    @property
    def known(self) -> list[bool]:
        """The verdicts that are known; empty if these are not more than half."""
        known = [verdict for verdict in self.exemplars if verdict is not None]
        return known if len(known) * 2 > len(self.exemplars) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The images that test a claim, and the responses to them."""

    claim: Claim
    outcome: str
    """tested, abstained, undrawable (at least half of the positive images fail the check), or unwritten (no usable
    prompts)."""
    cause: str = ""
    """Why no usable prompts, or too few, were written."""
    overlap: PromptOverlap | None = None
    """With the prompts of the agent. None if the trial has no images."""
    writer: str = ""
    protocol: str = ""
    """The preset (`EvaluationDesign.preset`), with the number of methods if these share their prompts."""
    generator: str = ""
    stimuli: tuple[Stimulus, ...] = ()
    """The positive and neutral images, followed by the control images."""
    matrix: DeviationMatrix = field(default_factory=lambda: np.zeros((0, 0), np.float16))
    """(stimuli, units of the layer): responses minus `location`, divided by `scale`."""
    location: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Mean response of each unit to the images that `standard` names, (units,)."""
    scale: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Standard deviation of these responses, (units,)."""
    looks: tuple[int, ...] = ()
    """The number of positive images, and of neutral ones, that were asked for up to each look."""
    miss: float = ERROR
    """Probability with which an interval may miss the truth at the last look (`sequential.levels`)."""
    standard: str = ""
    """The images behind `location` and `scale`: EXEMPLARS for the dataset, CONTROLS for the images of this trial (see
    `standardise`)."""
    exemplars: float | None = None
    """Mean standardised activation on the unit's top exemplars; None unless `standard` is EXEMPLARS, and for a constant
    unit."""
    detection: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The results of `detect` and `fuzz`; empty if detection was left out."""
    sightings: Sightings | None = None
    """None if there are no exemplars."""

    def rows(self, role: str, *, verified: bool = False) -> list[int]:
        """Returns the rows of all images of a role (`Stimulus.role`); with `verified` without those that are known not
        to show what was requested.
        """
        return [
            row
            for row, stimulus in enumerate(self.stimuli)
            if stimulus.role == role and not (verified and stimulus.shows is False)
        ]


def run_stimuli(
    claim: Claim, prompts: Sequence[StimulusPrompt], generator: Generator, target: Target, judge: Judge | None
) -> tuple[list[Stimulus], FloatArray]:
    """Generates and checks the test images of a claim, and measures the responses of all units of the layer, (stimuli,
    units).
    """
    stimuli, images = draw_stimuli(prompts, generator, judge)
    responses = target.respond([LayerProbe(layer=claim.unit.layer, image=image) for image in images])
    activations = [float(response[claim.unit.index]) for response in responses]
    return [
        replace(stimulus, data=image.packed().data, activation=activation)
        for stimulus, image, activation in zip(stimuli, images, activations, strict=True)
    ], np.stack(responses)


def draw_stimuli(
    prompts: Sequence[StimulusPrompt], generator: Generator, judge: Judge | None
) -> tuple[list[Stimulus], list[EncodedImage]]:
    """Generates images and checks whether they show what was requested. The judge is asked about images of labels on
    which the generator says nothing. Returns a Stimulus, with activation 0 and without its image, and an image for each
    prompt.
    """
    generated = generator.generate([Generation(prompt=each.prompt, seed=each.seed, split="test") for each in prompts])
    stimuli: list[Stimulus] = []
    for prompt, result in zip(prompts, generated, strict=True):
        shows: ImageVerdict = False if result.missing_terms else True if result.verified_by else None
        verified_by = result.verified_by or ("the generator" if result.missing_terms else judge.name if judge else "")
        if shows is None and judge and prompt.label:
            seen = judge.judge([result.image], [prompt.label])[0][0]
            shows = seen if prompt.role == "positive" or seen is None else not seen
        stimuli.append(
            Stimulus(
                role=prompt.role,
                label=prompt.label,
                prompt=prompt.prompt,
                digest=result.image.digest,
                sources=result.image.sources,
                missing_terms=result.missing_terms,
                shows=shows,
                verified_by=verified_by,
                activation=0.0,
            )
        )
    return stimuli, [result.image for result in generated]


def is_drawable(stimuli: Sequence[Stimulus]) -> bool:
    """Returns whether fewer than half of the positive images are known not to show what was requested. False without
    positive images.
    """
    positive = [stimulus.shows is not False for stimulus in stimuli if stimulus.role == "positive"]
    return bool(positive) and sum(positive) * 2 > len(positive)


def standardise(
    responses: FloatArray, stimuli: Sequence[Stimulus], scale: LayerScale | None
) -> tuple[DeviationMatrix, FloatArray, FloatArray]:
    """Standardises the responses (stimuli, units) of one trial for each unit, by the mean and standard deviation in
    `scale`.

    Without it, or if the unit is constant over the dataset, the location is its mean over the neutral and control
    images, and the scale its standard deviation over all stimuli. Returns the standardised responses (clipped to
    MAX_DEVIATION; 0 if the scale of a unit is 0), the location and the scale.
    """
    quiet = [row for row, stimulus in enumerate(stimuli) if stimulus.role != "positive"]
    location = responses[quiet].mean(axis=0) if quiet else responses.mean(axis=0)
    spread = responses.std(axis=0)
    if scale is not None:
        usable = scale.std > CONSTANT
        location, spread = np.where(usable, scale.mean, location), np.where(usable, scale.std, spread)
    # As stored, so that scores of a stored trial are those of the trial.
    location, spread = (each.astype(np.float32).astype(np.float64) for each in (location, spread))
    return _deviations(responses, location, spread).astype(np.float16), location, spread


def own_deviations(trial: Trial) -> FloatArray:
    """Returns the standardised activations of the described unit on all stimuli, (stimuli,). Unlike its column of the
    matrix in full precision, where activations that differ do not become equal.
    """
    unit = trial.claim.unit.index
    activations = np.array([each.activation for each in trial.stimuli], np.float64)
    return _deviations(activations, trial.location[unit], trial.scale[unit])


def _deviations(responses: FloatArray, location: FloatArray, spread: FloatArray) -> FloatArray:
    deviations = np.divide(responses - location, spread, out=np.zeros_like(responses), where=spread > CONSTANT)
    return np.clip(np.nan_to_num(deviations), -MAX_DEVIATION, MAX_DEVIATION)
