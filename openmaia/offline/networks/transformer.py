"""A small vision transformer for drawn scenes."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from openmaia.offline.networks.heads import Heads, joined

_TOKENS = 64  # 8 x 8, for images of 96 pixels
_HEADS = 4


class TransformerBlock(nn.Module):
    """Attention and two linear layers, each after a normalisation and beside a shortcut."""

    def __init__(self, width: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.hidden = nn.GELU()
        self.reduce = nn.Linear(4 * width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        images, count, width = tokens.shape
        projected = self.project(self.norm1(tokens)).view(images, count, 3, _HEADS, width // _HEADS)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        tokens = tokens + self.merge(mixed.reshape(images, count, width))
        return tokens + self.reduce(self.hidden(self.expand(self.norm2(tokens))))


class VisionTransformer(nn.Module):
    """Blocks on 8 x 8 tokens of 12 pixels each, whose mean is the feature of an image."""

    def __init__(self, heads: Mapping[str, int], width: int = 120, depth: int = 4):
        """Prepares random weights.

        Args:
            heads: Number of answers by name.
            width: Length of a token, a multiple of 4.
            depth: Number of blocks.
        """
        super().__init__()
        # Overlapping convolutions learn from fewer images than one layer of separate patches.
        self.patches = nn.Sequential(
            *(nn.Conv2d(3, 24, 3, 2, 1), nn.GELU(), nn.Conv2d(24, 48, 3, 2, 1), nn.GELU()),
            nn.Conv2d(48, width, 3, 3),
        )
        self.positions = nn.Parameter(0.02 * torch.randn(_TOKENS, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.heads = Heads(width, heads)

    def answers(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the logits of each head, shape (images, answers)."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.heads(self.norm(self.blocks(tokens)).mean(dim=1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the log-probabilities of `joined`."""
        return joined(self.answers(images))
