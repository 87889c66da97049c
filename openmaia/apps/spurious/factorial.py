"""The same judgement without an agent: every class in every place, and which of the two moves a unit.

The classes and places are given, where the agent has to find them, so this is a reference and no competitor on equal
terms. It looks at pictures of the half that agents use, and at nothing of the balanced data.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openmaia.apps.spurious.drawn import prompt
from openmaia.images import Picture
from openmaia.schema import SpuriousConfig
from openmaia.services import Generation, Generator, LayerProbe, Target
from openmaia.tools.seeds import seed

Floats = npt.NDArray[np.float64]


def pictures(asked: SpuriousConfig, generator: Generator, run_seed: int) -> list[list[list[Picture]]]:
    """[class][place][repeat]. Pictures of one place and repeat share their seed, and so their ground as far as the
    generator can keep it."""
    places = [*asked.train_locations, asked.filler, *asked.other_locations]
    return [
        [
            [
                made.picture
                for made in generator.generate(
                    [
                        Generation(
                            prompt=prompt(label, place), seed=seed(run_seed, "confirm", f"probe {place}", repeat)
                        )
                        for repeat in range(asked.probe)
                    ]
                )
            ]
            for place in places
        ]
        for label in asked.classes
    ]


def responses(target: Target, layer: str, shown: Sequence[Sequence[Sequence[Picture]]]) -> Floats:
    """(classes, places, repeats, units)"""
    return np.array(
        [
            [target.respond([LayerProbe(layer=layer, picture=picture) for picture in cell]) for cell in row]
            for row in shown
        ]
    )


def shares(found: Floats) -> tuple[Floats, Floats]:
    """(units,) each: the share of a unit's variance between classes and between places, as in a two-way analysis of
    variance of a balanced design."""
    middle = found.mean(axis=(0, 1, 2))
    total = found.var(axis=(0, 1, 2))
    total = np.where(total > 0, total, 1.0)
    by_class = ((found.mean(axis=(1, 2)) - middle) ** 2).mean(axis=0) / total
    by_place = ((found.mean(axis=(0, 2)) - middle) ** 2).mean(axis=0) / total
    return by_class, by_place


def selective(found: Floats, units: Sequence[int]) -> list[int]:
    """The units that the class moves more than the place."""
    by_class, by_place = shares(found)
    return [unit for unit in units if by_class[unit] > by_place[unit]]
