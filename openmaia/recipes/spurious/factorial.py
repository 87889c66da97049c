"""Judges without an agent whether a unit is selective: does the class change its activation more than the place?

This factorial probe knows the classes and places, which the agent has to find, so it is a reference and not a fair
competitor. It generates its own images of every class in every place, none from Spawrious. Where a generator
cuts up dataset images, they are of the explore split, as the agent's are.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openmaia.agent.tools.seeds import seed
from openmaia.config.studies import SpuriousConfig
from openmaia.core.images import EncodedImage
from openmaia.core.services import Generation, Generator, LayerProbe, Target
from openmaia.recipes.spurious.drawing import make_prompt


def draw(settings: SpuriousConfig, generator: Generator, run_seed: int) -> list[list[list[EncodedImage]]]:
    """Generates `settings.probe` images of every class in every place, as nested lists [class][place][repeat]."""
    places = [*settings.train_locations, settings.filler, *settings.other_locations]

    def cell(label: str, place: str) -> list[EncodedImage]:
        # Without the class, so that images of different classes share their background with some generators.
        seeds = [seed(run_seed, "confirm", f"probe {place}", repeat) for repeat in range(settings.probe)]
        requests = [Generation(prompt=make_prompt(label, place), seed=number) for number in seeds]
        return [made.image for made in generator.generate(requests)]

    return [[cell(label, place) for place in places] for label in settings.classes]


def measure_responses(
    target: Target, layer: str, images: Sequence[Sequence[Sequence[EncodedImage]]]
) -> npt.NDArray[np.float64]:
    """Measures the activations of all units of a layer on the images of `draw`, (classes, places, repeats, units)."""
    return np.array(
        [[target.respond([LayerProbe(layer=layer, image=image) for image in cell]) for cell in row] for row in images]
    )


def find_selective(activations: npt.NDArray[np.float64], units: Sequence[int]) -> list[int]:
    """Returns the units whose mean activations vary more between classes than between places.

    Both variances are main effects in a two-way analysis of variance with a balanced design.

    Args:
        activations: (classes, places, repeats, units)
        units: Indices into the last axis.
    """
    by_class = activations.mean(axis=(1, 2)).var(axis=0)
    by_place = activations.mean(axis=(0, 2)).var(axis=0)
    return [unit for unit in units if by_class[unit] > by_place[unit]]
