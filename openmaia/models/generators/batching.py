"""Runs a diffusion pipeline in batches, whose size is reduced to fit into memory. Each image has its own noise."""

import gc
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from PIL import Image

from openmaia.core.errors import HostDead, ServiceError, UsageError
from openmaia.core.images import Pixels
from openmaia.models.generators.diffusion import PipelineConfig
from openmaia.models.generators.loading import READS_ALL, DiffusionRole, check_kind, guidance_argument, load

log = logging.getLogger("openmaia")

_BEFORE_PROMPT = {
    "Flux2KleinPipeline": "<|im_start|>user\n",
    "ZImagePipeline": "<|im_start|>user\n",
    "QwenImagePipeline": "",
}
"""Text encoders that are language models: what stands before a prompt and counts as part of it, by pipeline. Their tokenizers add no
end mark."""

# Of allocators other than PyTorch's for GPUs, in a RuntimeError.
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageJob:
    """A request for one image, whose sides are multiples of `DiffusionBatcher.grid`."""

    prompt: str
    """The description, or the editing instruction."""
    seed: int
    height: int
    width: int
    image: Image.Image | None = None
    """The image to edit, of the same height and width."""


class DiffusionBatcher:
    """Generates or edits images in batches. Learns which batch size fits into memory."""

    def __init__(self, config: PipelineConfig, role: DiffusionRole, key: str):
        """Loads the pipeline. `key` is the config section, for messages. Raises UsageError if it cannot be loaded."""
        self._config = config
        self._role, self._key = role, key
        self._pipeline: Any = load(config, role, key)
        self._parameters = signature(self._pipeline.__call__).parameters
        self._max_pixels: int | None = None  # of a batch; None until one was too large

    @property
    def grid(self) -> int:
        """Pixels of which the sides of images must be multiples."""
        # Some transformers process latents in patches of 2 x 2.
        return 2 * getattr(self._pipeline, "vae_scale_factor", 8)

    @property
    def name(self) -> str:
        return type(self._pipeline).__name__

    def truncated(self, prompt: str) -> tuple[str, ...]:
        """Returns the end of a too long prompt that is ignored; () if there is none, or no limit."""
        names = ("tokenizer_3", "tokenizer_2", "tokenizer")
        tokenizer: Any = next((known for name in names if (known := getattr(self._pipeline, name, None))), None)
        if tokenizer is None or self.name in READS_ALL:
            return ()
        by_config = "max_sequence_length" in self._parameters
        limit = self._config.max_text_tokens if by_config else int(tokenizer.model_max_length)
        if self.name in _BEFORE_PROMPT:
            kept = limit - len(tokenizer(_BEFORE_PROMPT[self.name])["input_ids"])
            tokens = tokenizer(prompt)["input_ids"]
            return (tokenizer.decode(tokens[kept:]),) if len(tokens) > kept else ()
        tokens = tokenizer(prompt)["input_ids"]
        # The last of the tokens that are read is the end mark.
        return (tokenizer.decode(tokens[limit - 1 : -1]),) if len(tokens) > limit else ()

    def require_edits(self) -> None:
        """Raises UsageError if the pipeline does not edit by instruction."""
        check_kind(f"editor.kind=generator: {self._key}.model={self._config.model!r}", self._pipeline, "editor")

    def try_out(self, job: ImageJob) -> None:
        """Generates in two steps, so that an invalid config is noticed before a run begins. Raises UsageError."""
        try:
            self._call([job], steps=2)
        except (ServiceError, RuntimeError, ValueError, TypeError) as error:
            advice = "; set quantize=nf4 or offload=true" if _is_out_of_memory(error) else ""
            raise UsageError(
                f"{self._key}.model={self._config.model!r} was loaded but cannot generate an image of "
                f"{job.width} x {job.height} pixels{advice}: {' '.join(str(error).split())[:400]}"
            ) from error

    def generate(self, jobs: Sequence[ImageJob], batch_size: int | None = None) -> list[Pixels]:
        """Generates the images of jobs, in their order, each uint8 of shape (height, width, 3).

        Args:
            batch_size: Largest number of images per batch, None for as many as fit into memory.

        Raises:
            ServiceError: The pipeline failed, a single image does not fit into memory, or its pixels are not finite.
            HostDead: The GPU no longer answers.
        """
        by_size: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            by_size[job.height, job.width].append(i)
        images: dict[int, Pixels] = {}
        for pending in by_size.values():
            while pending:
                batch = pending[: self._limit(jobs[pending[0]], batch_size)]
                generated = self._attempt([jobs[i] for i in batch])
                if generated is None:
                    self._shrink([jobs[i] for i in batch])
                    continue
                images.update(zip(batch, generated, strict=True))
                del pending[: len(batch)]
        return [images[i] for i in range(len(jobs))]

    def _limit(self, job: ImageJob, batch_size: int | None) -> int | None:
        if self._max_pixels is None:
            return batch_size
        fitting = max(1, self._max_pixels // (job.height * job.width))
        return fitting if batch_size is None else min(batch_size, fitting)

    def _attempt(self, batch: Sequence[ImageJob]) -> list[Pixels] | None:
        """None if the batch does not fit into memory."""
        try:
            return self._call(batch, self._config.steps)
        # A mark of an image in a prompt makes processors look for one more image (StopIteration, which no future may raise).
        except (RuntimeError, ValueError, LookupError, TypeError, StopIteration) as error:
            if _is_out_of_memory(error):
                return None
            if isinstance(error, torch.AcceleratorError):
                raise HostDead(f"{self._role}: the GPU no longer answers: {error}") from error
            raise ServiceError(f"{self._role}: {self.name} failed: {str(error) or type(error).__name__}") from error

    def _shrink(self, batch: Sequence[ImageJob]) -> None:
        # Not in the except clause: while the exception lives, its frames hold the tensors of the batch.
        self._pipeline.maybe_free_model_hooks()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        size = f"{batch[0].width} x {batch[0].height} pixels"
        if len(batch) == 1:
            raise ServiceError(
                f"{self._role}: a single image of {size} does not fit into memory; choose a smaller "
                f"{self._key}.model, set quantize=nf4 or offload=true there, or give it a GPU of its own "
                f"(pools.{self._role}.num_gpus=1)"
            )
        fewer = len(batch) // 2
        self._max_pixels = fewer * batch[0].height * batch[0].width
        log.warning(
            "%s: %d images of %s do not fit into memory; from now on batches have %d. pools.%s.max_batch=%d avoids the attempt",
            *(self._role, len(batch), size, fewer, self._role, fewer),
        )

    def _call(self, batch: Sequence[ImageJob], steps: int) -> list[Pixels]:
        config, job = self._config, batch[0]
        guidance = guidance_argument(self._pipeline) or "guidance_scale"
        scale = config.guidance if config.guidance >= 0 else None
        is_true = guidance == "true_cfg_scale" and (self._parameters[guidance].default if scale is None else scale) > 1
        arguments: dict[str, Any] = {
            "num_inference_steps": steps if steps > 0 else None,
            guidance: scale,
            # Without a negative prompt, `true_cfg_scale` would have no effect.
            "negative_prompt": [" "] * len(batch) if is_true else None,
            "max_sequence_length": None if self.name in READS_ALL else config.max_text_tokens,
            "height": job.height,
            "width": job.width,
            # By default, Kontext generates a megapixel, whatever size it is given.
            "max_area": job.height * job.width,
            "_auto_resize": False,
            "image": _inputs(batch),
            "generator": [_noise(job.seed) for job in batch],
            "output_type": "np",
        }
        given = {name: value for name, value in arguments.items() if name in self._parameters and value is not None}
        images = self._pipeline(prompt=[job.prompt for job in batch], **given).images
        if not np.isfinite(images).all():
            raise ServiceError(
                f"{self._role}: {self.name} generated pixels that are not finite; {self._key}.dtype="
                f"{config.dtype} may be too narrow for it, try bfloat16 or float32"
            )
        return list((_on_white(images) * 255).round().astype(np.uint8))


def _inputs(batch: Sequence[ImageJob]) -> Any:
    images = [job.image for job in batch if job.image is not None]
    # No list of one: some pipelines take a list as several references for one result.
    return images if len(images) > 1 else next(iter(images), None)


def _on_white(images: np.ndarray) -> np.ndarray:
    """Images with an alpha channel, as Qwen-Image 2.1 draws them, on the ground that its text encoder sees them on."""
    if images.shape[-1] == 3:
        return images
    colours, alpha = images[..., :3], images[..., 3:]
    return colours * alpha + (1 - alpha)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in OUT_OF_MEMORY)


def _noise(seed: int) -> torch.Generator:
    # On the CPU, so that a seed gives the same noise on every device.
    return torch.Generator("cpu").manual_seed(seed & (2**63 - 1))
