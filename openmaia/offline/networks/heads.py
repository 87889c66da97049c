"""The outputs of networks with several heads."""

import math
from collections.abc import Mapping

import torch
from torch import nn


class Heads(nn.Module):
    """Linear layers for different questions about one image. The answers to each exclude one another."""

    def __init__(self, width: int, heads: Mapping[str, int]):
        """Prepares the layers.

        Args:
            width: Length of the features of an image.
            heads: Number of answers by name.
        """
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(width, answers) for name, answers in heads.items()})

    def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the logits of each head, shape (images, answers), for features of shape (images, width)."""
        return {name: layer(features) for name, layer in self.layers.items()}


def joined(logits: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns log-probabilities of the answers to all heads in their order, shape (images, all answers).

    With n heads, each has the probability 1/n, so that all sum to 1.
    """
    share = math.log(len(logits))
    return torch.cat([each.log_softmax(dim=1) - share for each in logits.values()], dim=1)
