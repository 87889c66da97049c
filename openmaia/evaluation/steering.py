"""What the network says of the same images while a unit is weakened and strengthened: the data of a row of pictures.

Each tested unit is multiplied by the FACTORS on a few neutral images of one trial of the run, the same for all units.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from openmaia.core.images import EncodedImage
from openmaia.core.services import Classifier, Intervention
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.storage import StoredTrials, read_result, write_result
from openmaia.evaluation.trials import Stimulus
from openmaia.runs.run import InvestigationId, Run

STEERING_FILE = "steering.json"
FACTORS = (0.0, 1.0, 4.0)
_IMAGES = 4
_CLASSES = 3

Said = tuple[tuple[str, float], ...]
"""The most probable classes with their probabilities, the most probable first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredUnit:
    """What the network says while one unit is multiplied."""

    unit: Unit
    said: tuple[tuple[Said, ...], ...]
    """By image and by factor, in the orders of `Steering.images` and FACTORS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """The same images for all units."""

    trial: InvestigationId
    """The images are neutral ones of its trial."""
    images: tuple[str, ...]
    """`Stimulus.digest` of each."""
    units: tuple[SteeredUnit, ...]


def measure_steering(
    run: Run, target: Classifier, progress: Callable[[int, int], None] = lambda done, total: None
) -> Steering | None:
    """Multiplies each tested unit. None if no trial has neutral images, or no unit can be changed.

    `progress` gets the number of units that are done and that of all.
    """
    stored, effects = StoredTrials(run), target.effects()
    claims = [each.claim for each in stored if each.outcome == "tested" and each.claim.unit.layer in effects.layers]
    source = next((each for claim in claims if (each := _neutral(stored, claim.investigation))), None)
    if source is None:
        return None
    trial, stimuli = source
    images = [EncodedImage(data=each.data) for each in stimuli]
    units = list(dict.fromkeys(claim.unit for claim in claims))
    found: list[SteeredUnit] = []
    for done, unit in enumerate(units, start=1):
        asked = [Intervention(unit=unit, image=image, scale=factor) for image in images for factor in FACTORS]
        said = [_said(each, effects.classes) for each in target.intervene(asked)]
        by_image = tuple(tuple(said[at : at + len(FACTORS)]) for at in range(0, len(said), len(FACTORS)))
        found.append(SteeredUnit(unit=unit, said=by_image))
        progress(done, len(units))
    return Steering(trial=trial, images=tuple(each.digest for each in stimuli), units=tuple(found))


def _neutral(stored: StoredTrials, investigation: InvestigationId) -> tuple[InvestigationId, Sequence[Stimulus]] | None:
    trial = stored.readable(investigation, images=True)
    rows = [] if trial is None else [int(row) for row in trial.rows("neutral", verified=True)][:_IMAGES]
    return None if trial is None or not rows else (investigation, [trial.stimuli[row] for row in rows])


def _said(logarithms: FloatArray, classes: Sequence[str]) -> Said:
    best: list[int] = np.argsort(-logarithms, kind="stable")[:_CLASSES].tolist()
    return tuple((classes[at], round(float(np.exp(logarithms[at])), 4)) for at in best)


def write_steering(run: Run, steering: Steering) -> None:
    """Stores the result in the run directory."""
    write_result(run, STEERING_FILE, asdict(steering))


def read_steering(run: Run) -> Steering | None:
    """Reads the stored result; None if it is missing, damaged, or older than the run's evaluations."""
    stored = read_result(run, STEERING_FILE)
    if stored is None or find_mistyped(stored, Steering) is not None:
        return None
    units = tuple(
        SteeredUnit(
            unit=Unit(**row["unit"]),
            said=tuple(tuple(tuple((name, p) for name, p in said) for said in image) for image in row["said"]),
        )
        for row in stored["units"]
    )
    trial = InvestigationId(unit=Unit(**stored["trial"]["unit"]), replicate=stored["trial"]["replicate"])
    found = Steering(trial=trial, images=tuple(stored["images"]), units=units)
    return found if all(_is_whole(each.said, len(found.images)) for each in units) else None


def _is_whole(said: tuple[tuple[Said, ...], ...], images: int) -> bool:
    return len(said) == images and all(len(image) == len(FACTORS) and all(image) for image in said)
