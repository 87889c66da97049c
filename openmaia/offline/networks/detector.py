"""A network that finds the figures of a drawn scene and names their looks and the setting."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from openmaia.offline.networks.heads import Heads
from openmaia.offline.networks.residual import ResidualBlock

LOOKS = ("kind", "colour", "pattern")
"""Questions about each figure. All others are about the whole image."""


class SceneDetector(nn.Module):
    """Four stages of residual blocks, and a map of cells of 8 pixels that joins the last stage with the second one."""

    def __init__(
        self, answers: Mapping[str, int], widths: tuple[int, int, int, int] = (40, 80, 128, 160), join: int = 96
    ):
        """Prepares random weights.

        Args:
            answers: Number of answers by question.
            widths: Number of units of each stage.
            join: Number of units of the map of cells.
        """
        super().__init__()
        first, second, third, fourth = widths
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.stage1 = ResidualBlock(16, first, 2)
        self.stage2 = ResidualBlock(first, second, 2)
        self.stage3 = ResidualBlock(second, third, 2)
        self.stage4 = nn.Sequential(ResidualBlock(third, fourth, 1), ResidualBlock(fourth, fourth, 1))
        self.fine, self.coarse = nn.Conv2d(second, join, 1), nn.Conv2d(fourth, join, 1)
        self.whole = nn.Linear(fourth, join)
        self.joint = nn.Sequential(
            nn.BatchNorm2d(join), nn.ReLU(), nn.Conv2d(join, join, 3, 1, 1, bias=False), nn.BatchNorm2d(join), nn.ReLU()
        )
        looks = {name: nn.Conv2d(join, answers[name], 1) for name in LOOKS}
        self.looks = nn.ModuleDict(looks)
        self.boxes = nn.Conv2d(join, 3, 1)
        self.setting = Heads(fourth, {name: count for name, count in answers.items() if name not in LOOKS})
        # In most cells is the middle of nothing. Otherwise the first steps would learn this alone.
        if (bias := looks["kind"].bias) is not None:
            nn.init.constant_(bias, -4.0)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns logits: of looks with shape (images, answers, h, w), of the setting with shape (images, answers).

        "boxes" has the shape (images, 3, h, w): the logarithms of width, height and visible area of the figure whose middle lies
        in a cell, as shares of the image.
        """
        second = self.stage2(self.stage1(self.stem(images)))
        fourth = self.stage4(self.stage3(second))
        whole = fourth.mean(dim=(2, 3))
        coarse = functional.interpolate(self.coarse(fourth), size=second.shape[2:], mode="bilinear")
        cells = self.joint(self.fine(second) + coarse + self.whole(whole)[:, :, None, None])
        looks = {name: layer(cells) for name, layer in self.looks.items()}
        return {**looks, "boxes": self.boxes(cells), **self.setting(whole)}
