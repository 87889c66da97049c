"""A claim put to the test: its images, whether they show what was asked, and what all units of the layer answered.

Scoring is left for later (scores.py): it needs the trials of other units too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.evaluate.claims import Claim
from openmaia.evaluate.judges import Judge, Verdict
from openmaia.evaluate.statistics import Values
from openmaia.evaluate.writers import Shot
from openmaia.images import Picture
from openmaia.services import Generation, Generator, LayerProbe, Target

Matrix = npt.NDArray[np.float16]

EXEMPLARS, CONTROLS = "exemplars", "controls"

FLAT = 1e-12
"""A spread below it is the rounding of a constant."""

MOST = 60_000.0
"""Deviations beyond it are cut off: half precision ends there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """An image of a test. role: positive, neutral, unrelated or random. shows: whether it is what was asked for, as
    verified_by says. undrawn: words of the prompt that it lacks. data: WebP, empty for images that many units share.
    activation: of the claim's unit."""

    role: str
    label: str = ""
    prompt: str = ""
    digest: str
    sources: tuple[str, ...] = ()
    undrawn: tuple[str, ...] = ()
    shows: Verdict = None
    verified_by: str = ""
    data: bytes = b""
    activation: float

    @property
    def cluster(self) -> str:
        """What it shares with other images: the prompt; a real picture is alone."""
        return self.prompt or self.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """matrix: (stimuli, units of the layer), deviations above each unit's mean, for which location and scale (units,) are
    what standard names: the exemplars' per-picture maxima, or the images of this trial where there are none. outcome: tested, abstained, undrawable, or unwritten (cause: why no usable prompts came)."""

    claim: Claim
    outcome: str
    cause: str = ""
    writer: str = ""
    protocol: str = ""
    stimuli: tuple[Stimulus, ...] = ()
    matrix: Matrix = field(default_factory=lambda: np.zeros((0, 0), np.float16))
    location: Values = field(default_factory=lambda: np.zeros(0))
    scale: Values = field(default_factory=lambda: np.zeros(0))
    standard: str = ""
    detection: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def rows(self, role: str, *, verified: bool = False) -> list[int]:
        """verified: without those that are known not to show what was asked."""
        return [
            at
            for at, stimulus in enumerate(self.stimuli)
            if stimulus.role == role and not (verified and stimulus.shows is False)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """An image that serves many units. responses: by layer, (units,)."""

    role: str
    prompt: str
    picture: Picture
    sources: tuple[str, ...]
    undrawn: tuple[str, ...]
    responses: Mapping[str, Values]


Scale = tuple[Values, Values]
"""Mean and standard deviation of the per-picture activations of all units of a layer, (units,) each."""


def made(
    claim: Claim, shots: Sequence[Shot], generator: Generator, target: Target, judge: Judge | None
) -> tuple[list[Stimulus], Values]:
    """The images of a claim, and the responses of its layer, (stimuli, units)."""
    requests = [Generation(prompt=shot.prompt, seed=shot.seed, half="test") for shot in shots]
    drawn = generator.generate(requests)
    answers = target.respond([LayerProbe(layer=claim.unit.layer, picture=one.picture) for one in drawn])
    stimuli: list[Stimulus] = []
    for shot, one, answer in zip(shots, drawn, answers, strict=True):
        shows: Verdict = False if one.undrawn else True if one.vouched else None
        by = one.vouched or (judge.name if judge and shows is None else "the generator" if one.undrawn else "")
        if shows is None and judge and shot.label:
            seen = judge.judge([one.picture], [shot.label])[0][0]
            shows = seen if shot.role == "positive" or seen is None else not seen
        stimuli.append(
            Stimulus(
                role=shot.role,
                label=shot.label,
                prompt=shot.prompt,
                digest=one.picture.digest,
                sources=one.picture.sources,
                undrawn=one.undrawn,
                shows=shows,
                verified_by=by,
                data=one.picture.webp(),
                activation=float(answer[claim.unit.index]),
            )
        )
    return stimuli, np.stack(answers)


def shared(claim: Claim, control: Control) -> Stimulus:
    return Stimulus(
        role=control.role,
        prompt=control.prompt,
        digest=control.picture.digest,
        sources=control.sources,
        undrawn=control.undrawn,
        activation=float(control.responses[claim.unit.layer][claim.unit.index]),
    )


def is_drawn(stimuli: Sequence[Stimulus]) -> bool:
    """Whether most of the positive images may show what was asked."""
    positive = [stimulus.shows is not False for stimulus in stimuli if stimulus.role == "positive"]
    return bool(positive) and sum(positive) * 2 > len(positive)


def standardised(responses: Values, stimuli: Sequence[Stimulus], scale: Scale | None) -> tuple[Matrix, Values, Values]:
    """(matrix, location, scale). A unit without a scale, or one that the exemplars' pictures left constant, is measured
    from the mean of its neutral and control images by the spread of all images here. Constant units deviate by nothing."""
    quiet = [at for at, stimulus in enumerate(stimuli) if stimulus.role != "positive"]
    location = responses[quiet].mean(axis=0) if quiet else responses.mean(axis=0)
    spread = responses.std(axis=0)
    if scale is not None:
        usable = scale[1] > FLAT
        location, spread = np.where(usable, scale[0], location), np.where(usable, scale[1], spread)
    deviations = np.divide(responses - location, spread, out=np.zeros_like(responses), where=spread > FLAT)
    return np.clip(np.nan_to_num(deviations), -MOST, MOST).astype(np.float16), location, spread
