"""A text-to-image pipeline as Generator."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from openmaia.generators.diffusion.batching import Batcher, Job
from openmaia.images import Picture, Pixels
from openmaia.schema import DiffusionConfig
from openmaia.services import Drawn, Generation


class DiffusionGenerator:
    def __init__(self, config: DiffusionConfig, size: int):
        """size: pixels per side of every picture; where the model cannot draw it, the next size that it can is scaled down.

        Raises UsageError, naming the key, for a config that cannot draw.
        """
        self._batcher = Batcher(config, "generator")
        self._size = size
        self._drawn_size = -(-size // self._batcher.grid) * self._batcher.grid
        self._batcher.try_out(self._job(Generation(prompt="a red ball", seed=0)))

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        pictures = self._batcher.draw([self._job(request) for request in requests])
        return [
            Drawn(
                picture=Picture.of(resized(pixels, self._size, self._size)), undrawn=self._batcher.cut(request.prompt)
            )
            for request, pixels in zip(requests, pictures, strict=True)
        ]

    def _job(self, request: Generation) -> Job:
        return Job(prompt=request.prompt, seed=request.seed, height=self._drawn_size, width=self._drawn_size)


def resized(pixels: Pixels, height: int, width: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS))
