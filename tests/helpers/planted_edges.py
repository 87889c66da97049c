"""A classifier each of whose units raises one class: the truth for what is said of the effects of units."""

import numpy as np
import torch
from PIL import Image
from torch import nn

from openmaia.core.images import EncodedImage
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork

UNITS = 40
SIZE = 32
PREPROCESS = Preprocess(size=(SIZE, SIZE), crop=1, resample=Image.Resampling.BICUBIC, mean=(0.5,) * 3, std=(0.25,) * 3)


class PlantedEdges(nn.Module):
    """Units of the layer `units` see colours. Behind them a layer mixes them a little, and one weight of each is large.

    `edges` holds the class that each unit raises, shape (units,).
    """

    edges: torch.Tensor

    def __init__(self, units: int = UNITS, edge: float = 1.0, noise: float = 0.1):
        super().__init__()
        made = torch.Generator().manual_seed(0)
        self.colours, self.units = nn.Conv2d(3, units, 1), nn.ReLU()
        self.mix, self.fc = nn.Conv2d(units, units, 1), nn.Linear(units, units)
        self.register_buffer("edges", torch.randperm(units, generator=made))
        with torch.no_grad():
            for layer in (self.colours, self.mix, self.fc):
                layer.weight.copy_(noise * torch.randn(layer.weight.shape, generator=made))
                layer.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
            self.colours.weight.mul_(1 / noise)
            self.mix.weight[:, :, 0, 0] += torch.eye(units)
            self.fc.weight[self.edges, torch.arange(units)] += edge

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.mix(self.units(self.colours(x)))).mean((2, 3)))


COLOURS = {"red": (220, 30, 30), "green": (30, 170, 50), "blue": (40, 70, 220), "yellow": (240, 210, 40)}
NAMES = tuple(f"c{number}" for number in range(UNITS))


def network(labels: tuple[str, ...] = NAMES, heads: tuple[int, ...] = ()) -> TargetNetwork:
    return TargetNetwork(module=PlantedEdges().eval(), preprocess=PREPROCESS, labels=labels, heads=heads)


def seen_colour(index: int) -> str:
    """The one of COLOURS that excites a unit most."""
    values = (torch.tensor(list(COLOURS.values())) / 255 - 0.5) / 0.25
    excited = PlantedEdges().colours.weight[index, :, 0, 0] @ values.T
    return list(COLOURS)[int(excited.argmax())]


def colour_fields(count: int, seed: int = 0) -> list[EncodedImage]:
    """Images of 4 x 4 fields of random colours."""
    cells = np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return [EncodedImage.of(each.repeat(SIZE // 4, axis=0).repeat(SIZE // 4, axis=1)) for each in cells]
