"""Tests claims.

`evaluate_investigation` tests the claim of one investigation and needs no results of others. Scores that compare units
are computed afterwards from the stored trials.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from openmaia.core.images import EncodedImage
from openmaia.core.services import Probe, UnitActivation
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.overlap import ExploredPrompts, measure_overlap
from openmaia.evaluation.analysis.sequential import Look, levels
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Evaluation, compare_trials
from openmaia.evaluation.controls import ControlImages, ReferenceData, prepare_reference
from openmaia.evaluation.judging.detection import detect
from openmaia.evaluation.judging.fuzzing import fuzz
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.evaluation.pairing import write_paired
from openmaia.evaluation.prompts import StimulusPrompt, WrittenPrompts, write_prompts
from openmaia.evaluation.scores import look_at
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.sightings import look_at_exemplars
from openmaia.evaluation.storage import to_parquet
from openmaia.evaluation.trials import CONTROLS, EXEMPLARS, Stimulus, Trial, is_drawable, run_stimuli, standardise


def evaluate_investigation(
    claim: Claim,
    services: EvaluationServices,
    design: EvaluationDesign,
    reference: ReferenceData,
    explored: ExploredPrompts,
) -> bytes:
    """Tests the claim of one investigation. Returns the trial as a Parquet file, for `Run.write_artifact(TRIALS, …)`.
    No test image has a prompt in `explored`.
    """
    return to_parquet(run_trials([claim], services, design, reference, explored)[0])


def run_trials(
    claims: Sequence[Claim],
    services: EvaluationServices,
    design: EvaluationDesign,
    reference: ReferenceData,
    explored: ExploredPrompts = frozenset(),
) -> list[Trial]:
    """Tests the claims of several methods about one unit, in their order. No test image has a prompt in `explored`."""
    explored |= design.withheld
    written = write_all(claims, services, design, explored)
    trials = [
        _run_trial(claim, prompts, services, design, reference, explored)
        for claim, prompts in zip(claims, written, strict=True)
    ]
    if design.preset != "pairing" or len(claims) == 1:
        return trials
    return [replace(trial, protocol=f"pairing over {len(claims)} methods") for trial in trials]


def write_all(
    claims: Sequence[Claim],
    services: EvaluationServices,
    design: EvaluationDesign,
    explored: ExploredPrompts = frozenset(),
) -> list[WrittenPrompts]:
    """Writes the test prompts of the claims of several methods about one unit, which share them in the preset
    `pairing`. For each claim an UnansweredQuestion may say why there are none.
    """
    if design.preset == "pairing":
        assert services.model is not None
        return write_paired(claims, services.model, design.seed, explored)
    return [write_prompts(claim, services.writer, design.prompts, design.seed, explored) for claim in claims]


def evaluate_claims(
    claims: Sequence[Claim],
    services: EvaluationServices,
    design: EvaluationDesign,
    explored: ExploredPrompts = frozenset(),
) -> list[Evaluation]:
    """Tests and scores claims about any units without storing anything, in their order. No test image has a prompt in
    `explored`.
    """
    if not claims:
        return []
    reference = prepare_reference({claim.unit.layer for claim in claims}, services, design)
    trials: dict[int, Trial] = {}

    def investigation(number: int) -> tuple[Unit, int]:
        return claims[number].unit, claims[number].replicate

    for _, group in groupby(sorted(range(len(claims)), key=investigation), key=investigation):
        members = list(group)
        tested = run_trials([claims[number] for number in members], services, design, reference, explored)
        trials |= dict(zip(members, tested, strict=True))
    return compare_trials([trials[number] for number in range(len(claims))], design.sharing)


def _run_trial(
    claim: Claim,
    prompts: WrittenPrompts,
    services: EvaluationServices,
    design: EvaluationDesign,
    reference: ReferenceData,
    explored: ExploredPrompts,
) -> Trial:
    if isinstance(prompts, UnansweredQuestion) or not prompts:
        return Trial(
            claim=claim,
            outcome="abstained" if claim.is_abstention else "unwritten",
            cause=prompts.message if isinstance(prompts, UnansweredQuestion) else "",
            writer=services.writer.name,
            protocol=design.preset,
        )
    controls = reference.controls(claim, services, explored)
    words = reference.words.get(claim.unit.layer, ())
    own, responses, written = list[Stimulus](), list[FloatArray](), list[StimulusPrompt]()
    sizes = design.sizes

    def look(prompts: Sequence[StimulusPrompt], number: int) -> Trial:
        stimuli, measured = run_stimuli(claim, prompts, services.generator, services.target, services.judge)
        own.extend(stimuli)
        responses.extend(measured)
        written.extend(prompts)
        trial = assemble_trial(claim, own, responses, services, design, reference, controls, explored)
        cause = _fewer(own, sizes[number])
        return replace(trial, looks=sizes[: number + 1], miss=levels(sizes)[number], cause=cause)

    trial = look(prompts, 0)
    for number in range(1, len(sizes)):
        if trial.outcome != "tested" or look_at(trial, words, design.sharing) is not Look.OPEN:
            break
        more = write_prompts(claim, services.writer, sizes[number] - sizes[number - 1], design.seed, explored, written)
        if isinstance(more, UnansweredQuestion):
            trial = replace(trial, cause=f"no prompts for a further look: {more.message}")
            break
        trial = look(more, number)
    return replace(
        trial,
        detection=_detect(claim, services, design, reference),
        sightings=look_at_exemplars(claim, services, reference.captions, controls.photographs),
    )


def _fewer(own: Sequence[Stimulus], wanted: int) -> str:
    pairs = sum(stimulus.role == "positive" for stimulus in own)
    return "" if pairs == wanted else f"{pairs} of {wanted} prompts: the agent drew the others"


def assemble_trial(
    claim: Claim,
    own: Sequence[Stimulus],
    own_responses: Sequence[FloatArray],
    services: EvaluationServices,
    design: EvaluationDesign,
    reference: ReferenceData,
    controls: ControlImages,
    explored: ExploredPrompts = frozenset(),
) -> Trial:
    """Builds the trial of a claim from its positive and neutral images (`own`), with responses of the layer to each,
    (units,), as if after a single look, without `detection` and `sightings`.
    """
    stimuli, responses = [*own, *controls.stimuli], np.stack([*own_responses, *controls.responses])
    layer_scale = reference.scales.get(claim.unit.layer)
    matrix, location, scale = standardise(responses, stimuli, layer_scale)
    return Trial(
        claim=claim,
        outcome="tested" if is_drawable(own) else "undrawable",
        overlap=measure_overlap([stimulus.prompt for stimulus in stimuli if stimulus.prompt], explored),
        writer=services.writer.name,
        protocol=design.preset,
        generator=design.generator,
        stimuli=tuple(stimuli),
        matrix=matrix,
        location=location,
        scale=scale,
        looks=(design.prompts,),
        standard=CONTROLS if layer_scale is None else EXEMPLARS,
        exemplars=None if layer_scale is None else layer_scale.top_deviation(claim.unit.index),
    )


def _detect(
    claim: Claim, services: EvaluationServices, design: EvaluationDesign, reference: ReferenceData
) -> Mapping[str, object]:
    if services.judge is None or not reference.photographs or not design.detect:
        return {}
    activations = reference.photograph_responses[claim.unit.layer][:, claim.unit.index]

    def probe(images: Sequence[EncodedImage]) -> Sequence[UnitActivation]:
        return services.target.probe([Probe(unit=claim.unit, image=image) for image in images])

    shown = claim.statements, reference.photographs, activations, services.judge, design.detect
    return {**detect(*shown, probe), **fuzz(*shown, probe)}
