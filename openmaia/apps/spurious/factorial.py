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
    """Generates images of every class in every place (a scene, such as snow).

    There are `settings.probe` images for each combination of a class and a place.

    The seed of an image depends on its place and its number (repeat), but not on its class. With some generators,
    images of different classes therefore share their background.

    Args:
        settings: The classes, the places and the number of images.
        generator: Generates the images.
        run_seed: The seed of the run.

    Returns:
        The images as nested lists with the indices [class][place][repeat].
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
    """Measures the activations of all units of a layer on images of every class in every place (a scene).

    Args:
        target: The classifier.
        layer: The name of the layer.
        images: The images with the indices [class][place][repeat], as returned by `draw`.

    Returns:
        The activations, shape (classes, places, repeats, units).
    """
    return np.array(
        [[target.respond([LayerProbe(layer=layer, image=image) for image in cell]) for cell in row] for row in images]
    )


def selective(activations: npt.NDArray[np.float64], units: Sequence[int]) -> list[int]:
    """Returns the units whose activation depends more on the class in an image than on the place (the scene).

    These are the units whose mean activations vary more between classes than between places. Both variances are main
    effects in a two-way analysis of variance with a balanced design.

    Args:
        activations: Shape (classes, places, repeats, units), as returned by `responses`.
        units: The units to judge, indices into the last axis.
    """
    by_class = activations.mean(axis=(1, 2)).var(axis=0)
    by_place = activations.mean(axis=(0, 2)).var(axis=0)
    return [unit for unit in units if by_class[unit] > by_place[unit]]
