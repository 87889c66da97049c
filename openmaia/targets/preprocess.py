"""From a picture to what a network sees: geometry first (a picture again), then numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from PIL import Image

from openmaia.errors import UsageError
from openmaia.images import Pixels

Preset = Literal["weights", "published"]
Box = tuple[float, float, float, float]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

TOLERANCE = 1.5
"""In pixels of the network's input, on a picture of ramps from edge to edge: libraries round sides and margins to whole
pixels, one after the other, where we cut and resize in one step. Another crop or another range is far beyond it."""

LEVELS = 3 / 255
"""Resizing rounds to whole levels, and bicubic resizing overshoots at edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocess:
    """size: (height, width) of the input. crop: the share of the shorter side that is kept, None for no crop at all
    (the shorter side becomes `size`, the longer one follows). squash: the share is taken of each side, and the
    proportions of the picture are lost. mean, std: on a scale of 0 to 1."""

    size: tuple[int, int]
    crop: float | None
    resample: Image.Resampling
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    squash: bool = False

    @property
    def any_shape(self) -> bool:
        """Whether the network is given inputs of other proportions than `size` has."""
        return self.crop is None

    def view(self, pixels: Pixels) -> tuple[Pixels, Box]:
        """The part of a picture that the network sees, at the network's size, and where it lies in the picture.

        A picture that has the input size already passes unchanged: so an exemplar, kept as the network saw it, gives
        its stored activation again.
        """
        height, width = pixels.shape[:2]
        if (height, width) == self.size:
            return pixels, (0.0, 0.0, float(width), float(height))
        if self.crop is None:
            return self._whole(pixels)
        aspect = self.size[1] / self.size[0]
        kept_height = (height if self.squash else min(height, width / aspect)) * self.crop
        kept_width = width * self.crop if self.squash else kept_height * aspect
        left, top = (width - kept_width) / 2, (height - kept_height) / 2
        box = (left, top, left + kept_width, top + kept_height)
        seen = Image.fromarray(pixels).resize((self.size[1], self.size[0]), self.resample, box=box)
        return np.asarray(seen), box

    def _whole(self, pixels: Pixels) -> tuple[Pixels, Box]:
        height, width = pixels.shape[:2]
        scale = min(self.size) / min(height, width)
        shape = (round(width * scale), round(height * scale))
        seen = pixels if scale == 1 else np.asarray(Image.fromarray(pixels).resize(shape, self.resample))
        return seen, (0.0, 0.0, float(width), float(height))

    def tensor(self, view: Pixels) -> torch.Tensor:
        """(height, width, 3) uint8 -> (3, height, width) float32, normalised."""
        values = torch.from_numpy(np.array(view)).permute(2, 0, 1).float() / 255
        mean, std = torch.tensor(self.mean).view(3, 1, 1), torch.tensor(self.std).view(3, 1, 1)
        return (values - mean) / std


def published(size: tuple[int, int]) -> Preprocess:
    """What the published MAIA code does with ResNet and DINO: shorter side to the input size, no crop, bilinear,
    ImageNet's mean and deviation."""
    return Preprocess(size=size, crop=None, resample=Image.Resampling.BILINEAR, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def agreeing(ours: Preprocess, theirs: Callable[[Image.Image], torch.Tensor], network: str) -> Preprocess:
    """`ours`, once it has been seen to do what the library's own transform does.

    theirs: an RGB image -> (3, height, width). Raises UsageError where our parameters cannot express it (borders,
    several crops, other value ranges).
    """
    rows, columns = np.mgrid[0:480, 0:720]
    ramps = np.stack([columns / 719, rows / 479, (columns + rows) / 1198], axis=2)
    pixels = np.asarray((ramps * 255).round(), dtype=np.uint8)
    expected = theirs(Image.fromarray(pixels)).float()
    # A share above one pads the picture.
    if ours.crop is None or ours.crop <= 1:
        found = ours.tensor(ours.view(pixels)[0])
        scale = torch.tensor(ours.std).view(3, 1, 1)
        near = TOLERANCE / min(ours.size) + LEVELS
        if expected.shape == found.shape and float(((expected - found) * scale).abs().max()) < near:
            return ours
    raise UsageError(
        f"target.network={network!r} prepares its inputs in a way that OpenMAIA cannot follow: what comes out, of shape "
        f"{tuple(expected.shape)}, is not what its configuration was understood to say ({ours}); load it by a factory of your own "
        "(package.module:factory) that returns a Network with its Preprocess"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network and how it is to be used.

    module: in evaluation mode. labels: names of its outputs, empty where unknown. aliases: names of layers that people
    know them by -> the module's own names. classifies: whether the output is logits of classes, so that its softmax
    is a probability. published: what the published code does with this network, where that is not `published(size)`.
    """

    module: torch.nn.Module
    preprocess: Preprocess
    labels: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    classifies: bool = True
    published: Preprocess | None = None
