"""Implements the service `Generator` with text-to-image pipelines."""

from collections.abc import Sequence

from openmaia.config.models import DiffusionConfig
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation
from openmaia.models.generators.batching import DiffusionBatcher, ImageJob
from openmaia.models.generators.resizing import resized


class DiffusionGenerator:
    """Generates square images of one size with a diffusion pipeline."""

    def __init__(self, config: DiffusionConfig, size: int):
        """Loads the model and generates a test image.

        Args:
            config: The config of the model.
            size: Pixels per side of the images. If the model cannot generate this size, larger images are scaled down.

        Raises:
            UsageError: The model cannot be loaded or cannot generate images. The message names the config key.
        """
        self._batcher = DiffusionBatcher(config, "generator")
        self._size = size
        self._model_size = -(-size // self._batcher.grid) * self._batcher.grid
        self._batcher.try_out(self._job(Generation(prompt="a red ball", seed=0)))

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        """Returns an image for each request, which is a prompt with a seed.

        Raises:
            ServiceError: A single image does not fit into memory, or the model failed.
            HostDead: The GPU no longer answers.
        """
        images = self._batcher.generate([self._job(request) for request in requests])
        return [
            GeneratedImage(
                image=EncodedImage.of(resized(pixels, self._size, self._size)),
                missing_terms=self._batcher.truncated(request.prompt),
            )
            for request, pixels in zip(requests, images, strict=True)
        ]

    def _job(self, request: Generation) -> ImageJob:
        return ImageJob(prompt=request.prompt, seed=request.seed, height=self._model_size, width=self._model_size)
