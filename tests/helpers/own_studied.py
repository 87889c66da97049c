"""A target and pictures as a user writes them: `write(folder)` makes the module `mystudy`."""

from pathlib import Path

MODULE = '''
"""A target of the mean colours of an image, and pictures of noise."""

from dataclasses import dataclass

import numpy as np
import torch

from openmaia.core.components import Component, PicturesConfig, TargetComponent, TargetConfig
from openmaia.core.images import EncodedImage, whole
from openmaia.core.services import UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.models.targets.network import StudiedNetwork, given_preprocess
from openmaia.models.targets.preprocess import TargetNetwork


@dataclass
class ColoursConfig(TargetConfig):
    scale: float = 1.0


class Colours(TargetComponent):
    Config = ColoursConfig
    batch = 1

    def __init__(self, config):
        self.name, self.scale = config.name, config.scale

    def info(self):
        return TargetInfo(name=self.name, layers={"mean": 3}, digest="mean colours", input_size=(32, 32))

    def probe(self, probes):
        boxes = [whole(each.image.pixels) for each in probes]
        return [
            UnitActivation(value=float(values[each.unit.index]), box=box)
            for each, values, box in zip(probes, self.respond(probes), boxes)
        ]

    def respond(self, probes):
        return [self._means(each.image.pixels) for each in probes]

    def view(self, pixels):
        return pixels, whole(pixels)

    def responses(self, views, recipes):
        return {"mean": torch.from_numpy(np.stack([self._means(each) for each in views]).astype(np.float32))}

    def _means(self, pixels):
        return (self.scale * pixels.mean((0, 1))).round(2)


class Brightness(StudiedNetwork):
    @staticmethod
    def network(config, weights):
        module = torch.nn.Sequential(torch.nn.AvgPool2d(16))
        return TargetNetwork(module=module, preprocess=given_preprocess(config).whole("mine"))


@dataclass
class NoiseConfig(PicturesConfig):
    count: int = 40


@dataclass(frozen=True)
class OneImage:
    seed: int

    @property
    def name(self):
        return f"noise {self.seed}"

    def read(self):
        random = np.random.default_rng(self.seed)
        cells = random.integers(0, 256, (8, 8, 3), np.uint8).repeat(4, 0).repeat(4, 1)
        return EncodedImage.of(cells).data


class Noise(Component):
    Config = NoiseConfig
    root = "noise of mine"
    expected = "at least one image"

    def __init__(self, config):
        self.count = config.count

    def stamp(self):
        return str(self.count)

    def sources(self):
        return [OneImage(seed) for seed in range(self.count)]
'''


def write(folder: Path) -> None:
    """Writes the user's module."""
    (folder / "mystudy.py").write_text(MODULE)
