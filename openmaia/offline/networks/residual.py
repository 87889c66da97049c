"""A small residual network for drawn scenes."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from openmaia.offline.networks.heads import Heads, joined


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.norm1(self.conv1(values)))
        return functional.relu(self.norm2(self.conv2(inner)) + self.shortcut(values))


class ResidualNetwork(nn.Module):
    """Four stages of one block each. For images of 96 pixels, their maps have sides of 24, 12, 6 and 6."""

    def __init__(self, heads: Mapping[str, int], widths: tuple[int, int, int, int] = (40, 64, 112, 160)):
        """Prepares random weights.

        Args:
            heads: Number of answers by name.
            widths: Number of units of each stage.
        """
        super().__init__()
        first, second, third, fourth = widths
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.stage1 = ResidualBlock(16, first, 2)
        self.stage2 = ResidualBlock(first, second, 2)
        self.stage3 = ResidualBlock(second, third, 2)
        self.stage4 = ResidualBlock(third, fourth, 1)
        self.heads = Heads(fourth, heads)

    def maps(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the maps of the last stage, shape (images, units, h, w)."""
        return self.stage4(self.stage3(self.stage2(self.stage1(self.stem(images)))))

    def answers(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the logits of each head, shape (images, answers)."""
        return self.heads(self.maps(images).mean(dim=(2, 3)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the log-probabilities of `joined`."""
        return joined(self.answers(images))
