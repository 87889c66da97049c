"""Tests random words as if they described units, as a control and for the null distribution of p-values.

One word is the strictest control: the score of several words would be an average, which is closer to chance. The images
are generated once for all layers.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from openmaia.core.units import Unit
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.controls import ReferenceData, respond
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.evaluation.protocol import assemble_trial, write_all
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.together import each_at_once
from openmaia.evaluation.trials import Trial, draw_stimuli, is_drawable

_METHOD = "random words"


_TRIES = 8
"""Words that are tried for each wanted description, because a generator may be unable to draw some."""


def draw_labels(words: Collection[str], count: int, run_seed: int) -> list[str]:
    """Draws `count` different words, or all of them if there are fewer, in an order that `run_seed` determines."""
    ordered = sorted(set(words))
    return random.Random(f"{run_seed} {_METHOD}").sample(ordered, min(count, len(ordered)))


def measure_random_words(
    layers: Collection[str], services: EvaluationServices, design: EvaluationDesign, reference: ReferenceData
) -> Iterator[Trial]:
    """Tests at most `design.random_words` descriptions of one random word each, the same in all layers.

    A word for which there are no usable prompts, or that cannot be drawn, is replaced by another. Images are not
    stored. Yields the trials of the first word in all layers, then those of the second, and so on. `claim.unit` is unit
    0 of the layer as a placeholder, and `claim.replicate` the number of the word.
    """
    if not layers or not design.random_words:
        return
    target, ordered, number = services.target.info().name, sorted(layers), 0
    labels = draw_labels(services.writer.words, _TRIES * design.random_words, design.seed)

    def measure(label: str) -> list[Trial]:
        claims = [
            Claim(
                unit=Unit(target=target, layer=layer, index=0),
                replicate=0,
                method=_METHOD,
                description=label,
                labels=(label,),
            )
            for layer in ordered
        ]
        prompts = write_all(claims[:1], services, design)[0]
        if isinstance(prompts, UnansweredQuestion) or not prompts:
            return []
        stimuli, images = draw_stimuli(prompts, services.generator, services.judge)
        if not is_drawable(stimuli):
            return []
        responses = respond(images, ordered, services.target)
        return [
            assemble_trial(
                claim,
                stimuli,
                [*np.asarray(responses[claim.unit.layer])],
                services,
                design,
                reference,
                reference.controls(claim, services),
            )
            for claim in claims
        ]

    while labels and number < design.random_words:
        # As many at the same time as are missing: a further one would be measured in vain.
        count = min(services.at_once, design.random_words - number)
        some, labels = labels[:count], labels[count:]
        measured = dict(each_at_once(measure, some, services.at_once))
        for trials in (measured[label] for label in some if measured[label]):
            yield from (replace(trial, claim=replace(trial.claim, replicate=number)) for trial in trials)
            number += 1
