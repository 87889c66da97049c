"""Judges without an agent whether a unit is selective: does the class change its activation more than the place?

The images show every class in every place.

This factorial probe knows the classes and places, which the agent has to find, so it is a reference and not a fair
competitor. It uses no images of the Spawrious data set, but generates its own. If the generator makes collages, their
parts are images of the explore split, the half of the image dataset that agents use, too.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openmaia.agent.tools.seeds import seed
from openmaia.apps.spurious.drawing import prompt
from openmaia.config.studies import SpuriousConfig
from openmaia.core.images import EncodedImage
from openmaia.core.services import Generation, Generator, LayerProbe, Target


def draw(settings: SpuriousConfig, generator: Generator, run_seed: int) -> list[list[list[EncodedImage]]]:
    """Generates `settings.probe` images of every class in every place of the settings, by [class][place][repeat].

    Images of the same place and repeat share their seed. With some generators they therefore share their background.
    """
    places = [*settings.train_locations, settings.filler, *settings.other_locations]

    def cell(label: str, place: str) -> list[EncodedImage]:
        seeds = [seed(run_seed, "confirm", f"probe {place}", repeat) for repeat in range(settings.probe)]
        requests = [Generation(prompt=prompt(label, place), seed=number) for number in seeds]
        return [made.image for made in generator.generate(requests)]

    return [[cell(label, place) for place in places] for label in settings.classes]


def responses(
    target: Target, layer: str, images: Sequence[Sequence[Sequence[EncodedImage]]]
) -> npt.NDArray[np.float64]:
    """Measures the activations of a layer on the images of `draw`. Shape (classes, places, repeats, units)."""
    return np.array(
        [[target.respond([LayerProbe(layer=layer, image=image) for image in cell]) for cell in row] for row in images]
    )


def selective(activations: npt.NDArray[np.float64], units: Sequence[int]) -> list[int]:
    """Returns those units for whose activation the class in the image explains more variance than the place.

    The variances are those of a two-way analysis of variance with a balanced design.

    Args:
        activations: Shape (classes, places, repeats, units), as returned by `responses`.
        units: The units to judge, indices into the last axis.
    """
    by_class = activations.mean(axis=(1, 2)).var(axis=0)
    by_place = activations.mean(axis=(0, 2)).var(axis=0)
    return [unit for unit in units if by_class[unit] > by_place[unit]]
