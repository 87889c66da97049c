"""An instruction-following image-editing pipeline as Editor."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from openmaia.generators.diffusion.batching import Batcher, Job
from openmaia.generators.diffusion.generator import resized
from openmaia.images import Picture
from openmaia.schema import DiffusionConfig
from openmaia.services import Drawn, Edit

BATCHING = ("FluxKontextPipeline", "StableDiffusionInstructPix2PixPipeline")
"""Pipelines that take a list of pictures as one for each prompt. To others a list means several references for one
prompt, so they get one picture at a time."""

MOST_PIXELS = 1024 * 1024
"""The area that editing models are trained at: a larger picture is edited at this area and enlarged again."""

SMALLEST = 64
"""Pixels of a side: a smaller picture is edited enlarged, since no model knows pictures that small."""


class DiffusionEditor:
    """An edited picture has the size of the picture it was made from, and its sources."""

    def __init__(self, config: DiffusionConfig):
        """Raises UsageError, naming the key, for a config that cannot edit."""
        self._batcher = Batcher(config, "editor")
        self._most = None if self._batcher.name in BATCHING else 1
        grey = Picture.of(np.full((256, 256, 3), 128, np.uint8))
        self._batcher.try_out(self._job(Edit(picture=grey, instruction="add a red ball", seed=0)))

    def edit(self, requests: Sequence[Edit]) -> list[Drawn]:
        edited = self._batcher.draw([self._job(request) for request in requests], self._most)
        drawn: list[Drawn] = []
        for request, pixels in zip(requests, edited, strict=True):
            height, width = request.picture.pixels.shape[:2]
            picture = Picture.of(resized(pixels, height, width), request.picture.sources)
            drawn.append(Drawn(picture=picture, undrawn=self._batcher.cut(request.instruction)))
        return drawn

    def _job(self, request: Edit) -> Job:
        image = request.picture.pil()
        height, width = drawn_size(image.height, image.width, self._batcher.grid)
        return Job(
            prompt=request.instruction,
            seed=request.seed,
            height=height,
            width=width,
            picture=image.resize((width, height), Image.Resampling.LANCZOS),
        )


def drawn_size(height: int, width: int, grid: int) -> tuple[int, int]:
    """(height, width) nearest to those given that the model can draw."""
    shrink = min(1.0, (MOST_PIXELS / (height * width)) ** 0.5)
    smallest = -(-SMALLEST // grid)
    return max(smallest, round(height * shrink / grid)) * grid, max(smallest, round(width * shrink / grid)) * grid
