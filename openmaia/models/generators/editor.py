"""Implements the service `Editor` with instruction-based image-editing pipelines."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from openmaia.config.models import DiffusionConfig
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage
from openmaia.models.generators.batching import DiffusionBatcher, ImageJob
from openmaia.models.generators.resizing import resized

BATCHING = ("FluxKontextPipeline", "StableDiffusionInstructPix2PixPipeline")
"""Pipelines of diffusers that accept a list with one image per prompt. Others take a list as several reference images
for one prompt and therefore receive one image at a time."""

MAX_PIXELS = 1024 * 1024
"""Largest area in pixels that is edited, the area on which models are trained. Larger images are scaled down to it for
editing, and the result is scaled up again."""

MIN_SIDE = 64
"""Minimum side in pixels of an image that is edited. Smaller images are scaled up for editing, because models are not
trained on such sizes."""


class DiffusionEditor:
    """Edits images by instructions with a diffusion pipeline.

    An edited image has the size of the original and the same `sources`, the digests of the dataset images in it.
    """

    def __init__(self, config: DiffusionConfig):
        """Loads the model and edits a test image.

        Raises:
            UsageError: The model cannot be loaded or cannot edit images. The message names the config key.
        """
        self._batcher = DiffusionBatcher(config, "editor")
        self._batch_size = None if self._batcher.name in BATCHING else 1
        grey = EncodedImage.of(np.full((256, 256, 3), 128, np.uint8))
        self._batcher.try_out(self._job(Edit(image=grey, instruction="add a red ball", seed=0)))

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """Returns an edited image for each request, which is an image with an instruction.

        Raises:
            ServiceError: A single image does not fit into memory, or the model failed.
            HostDead: The GPU no longer answers.
        """
        edited = self._batcher.generate([self._job(request) for request in requests], self._batch_size)
        results: list[GeneratedImage] = []
        for request, pixels in zip(requests, edited, strict=True):
            height, width = request.image.pixels.shape[:2]
            image = EncodedImage.of(resized(pixels, height, width), request.image.sources)
            results.append(GeneratedImage(image=image, missing_terms=self._batcher.truncated(request.instruction)))
        return results

    def _job(self, request: Edit) -> ImageJob:
        image = request.image.pil()
        height, width = editing_size(image.height, image.width, self._batcher.grid)
        return ImageJob(
            prompt=request.instruction,
            seed=request.seed,
            height=height,
            width=width,
            image=image.resize((width, height), Image.Resampling.LANCZOS),
        )


def editing_size(height: int, width: int, grid: int) -> tuple[int, int]:
    """Returns the height and width, in multiples of `grid`, at which an image of the given size is edited."""
    shrink = min(1.0, (MAX_PIXELS / (height * width)) ** 0.5)
    smallest = -(-MIN_SIDE // grid)
    return max(smallest, round(height * shrink / grid)) * grid, max(smallest, round(width * shrink / grid)) * grid
