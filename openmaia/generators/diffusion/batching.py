"""Pictures drawn in batches, each from noise of its own, and batches that shrink to what fits into memory."""

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

from openmaia.errors import HostDead, ServiceError, UsageError
from openmaia.generators.diffusion.loading import Role, load
from openmaia.generators.diffusion.prompts import Prompts
from openmaia.images import Pixels
from openmaia.schema import DiffusionConfig

LOG = logging.getLogger("openmaia")
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""How other allocators than PyTorch's own for GPUs say it, in a plain RuntimeError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One picture to draw. height, width: in pixels, multiples of Batcher.grid. picture: to edit, of that size."""

    prompt: str
    seed: int
    height: int
    width: int
    picture: Image.Image | None = None


class Batcher:
    """A pipeline and what it has been found to manage."""

    def __init__(self, config: DiffusionConfig, role: Role):
        self._config = config
        self._role = role
        self._pipeline: Any = load(config, role)
        self._signature = signature(self._pipeline.__call__).parameters
        guidance = self._signature.get("guidance_scale")
        default = None if guidance is None else guidance.default
        self._prompts = Prompts(
            self._pipeline, config.guidance if config.guidance >= 0 else default, config.max_text_tokens
        )
        self._most_pixels: int | None = None
        """Of a batch, all its pictures together; None as long as none has been too large."""

    @property
    def grid(self) -> int:
        """Sides of pictures are multiples of this: a latent, two where the transformer takes them in patches."""
        return 2 * getattr(self._pipeline, "vae_scale_factor", 8)

    @property
    def name(self) -> str:
        return type(self._pipeline).__name__

    def cut(self, prompt: str) -> tuple[str, ...]:
        return self._prompts.cut(prompt)

    def try_out(self, job: Job) -> None:
        """Two steps, so that what cannot work is said before a run begins. Raises UsageError."""
        try:
            self._call([job], steps=2)
        except (ServiceError, RuntimeError, ValueError, TypeError) as error:
            advice = "; set quantize=nf4 or offload=true" if _is_out_of_memory(error) else ""
            raise UsageError(
                f"{self._role}.diffusion.model={self._config.model!r} was loaded but cannot draw a picture of "
                f"{job.width} x {job.height} pixels{advice}: {' '.join(str(error).split())[:400]}"
            ) from error

    def draw(self, jobs: Sequence[Job], most: int | None = None) -> list[Pixels]:
        """Pixels (height, width, 3) uint8 in the order of the jobs.

        most: pictures per batch, None for as many as fit. Raises ServiceError where a single picture does not fit
        into memory or comes out as no number, HostDead where the GPU no longer answers.
        """
        sizes: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            sizes[job.height, job.width].append(i)
        drawn: dict[int, Pixels] = {}
        for waiting in sizes.values():
            while waiting:
                batch = waiting[: self._fitting(jobs[waiting[0]], most)]
                pictures = self._attempt([jobs[i] for i in batch])
                if pictures is None:
                    self._shrink([jobs[i] for i in batch])
                    continue
                drawn.update(zip(batch, pictures, strict=True))
                del waiting[: len(batch)]
        return [drawn[i] for i in range(len(jobs))]

    def _fitting(self, job: Job, most: int | None) -> int | None:
        if self._most_pixels is None:
            return most
        fitting = max(1, self._most_pixels // (job.height * job.width))
        return fitting if most is None else min(most, fitting)

    def _attempt(self, batch: Sequence[Job]) -> list[Pixels] | None:
        """None if the batch does not fit into memory."""
        try:
            return self._call(batch, self._config.steps)
        except (RuntimeError, ValueError) as error:
            if _is_out_of_memory(error):
                return None
            if isinstance(error, torch.AcceleratorError):
                raise HostDead(f"{self._role}: the GPU no longer answers: {error}") from error
            raise ServiceError(f"{self._role}: {self.name} failed: {error}") from error

    def _shrink(self, batch: Sequence[Job]) -> None:
        # After the except clause: while the exception lives, its frames hold the tensors of the batch.
        self._pipeline.maybe_free_model_hooks()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        size = f"{batch[0].width} x {batch[0].height} pixels"
        if len(batch) == 1:
            raise ServiceError(
                f"{self._role}: a single picture of {size} does not fit into memory; choose a smaller "
                f"{self._role}.diffusion model, set quantize=nf4 or offload=true there, or give it a GPU of its own "
                f"(pools.{self._role}.num_gpus=1)"
            )
        fewer = len(batch) // 2
        self._most_pixels = fewer * batch[0].height * batch[0].width
        LOG.warning(
            "%s: %d pictures of %s do not fit into memory; from now on %d at once. pools.%s.max_batch=%d avoids the attempt",
            *(self._role, len(batch), size, fewer, self._role, fewer),
        )

    def _call(self, batch: Sequence[Job], steps: int) -> list[Pixels]:
        config, job = self._config, batch[0]
        arguments: dict[str, Any] = {
            "num_inference_steps": steps if steps > 0 else None,
            "guidance_scale": config.guidance if config.guidance >= 0 else None,
            "max_sequence_length": config.max_text_tokens,
            "height": job.height,
            "width": job.width,
            # Kontext would otherwise draw at a megapixel, whatever it is given.
            "max_area": job.height * job.width,
            "_auto_resize": False,
            "image": _pictures(batch),
            "generator": [_noise(job.seed) for job in batch],
            "output_type": "np",
        }
        given = {name: value for name, value in arguments.items() if name in self._signature and value is not None}
        images = self._pipeline(**given, **self._prompts.arguments([job.prompt for job in batch])).images
        if not np.isfinite(images).all():
            raise ServiceError(
                f"{self._role}: {self.name} drew pixels that are no numbers; {self._role}.diffusion.dtype={config.dtype} "
                "may be too narrow for it, try bfloat16 or float32"
            )
        return list((images * 255).round().astype(np.uint8))


def _pictures(batch: Sequence[Job]) -> Any:
    """A single picture goes without a list: some pipelines take a list for several references of one picture."""
    pictures = [job.picture for job in batch if job.picture is not None]
    return pictures if len(pictures) > 1 else next(iter(pictures), None)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in OUT_OF_MEMORY)


def _noise(seed: int) -> torch.Generator:
    """On the CPU, so that a seed means the same picture on every device."""
    return torch.Generator("cpu").manual_seed(seed & (2**63 - 1))
