"""The generator and the editor `diffusers`: text-to-image and instruction-based editing pipelines of diffusers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

from omegaconf import MISSING

from openmaia.core.checks import Check, missing
from openmaia.core.components import Component, EditorConfig, GeneratorConfig, Site, machine
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.core.shipped import install_command
from openmaia.models.weights import DENOISERS, NF4, TEXT_ENCODERS, WeightSource

# These accept a list with one image per prompt. Others take a list as several references for one prompt.
BATCHING = ("FluxKontextPipeline", "StableDiffusionInstructPix2PixPipeline")

# These read an image at a megapixel, whatever its size. They are asked for results of that area, because they hold positions
# in both against each other.
AT_A_MEGAPIXEL = ("QwenImageEditPipeline", "QwenImageEditPlusPipeline", "QwenImage21Pipeline")

# Pixels of which the sides of what they read are multiples.
_READ_GRID = 32

# These place an image behind the longest prompt of its batch, so that it would depend on the others.
ALONE = ("QwenImage21Pipeline",)

# The area on which models are trained. Larger images are scaled down for editing, and the result up again.
_MAX_PIXELS = 1024 * 1024

# Smaller images are scaled up for editing, because models are not trained on such sides.
_MIN_SIDE = 64


@dataclass
class PipelineConfig:
    """The keys of a pipeline of diffusers."""

    model: str = MISSING
    """A name on the Hugging Face hub or a folder."""
    transformer: str = ""
    """A repository that replaces the transformer, such as a quantized one."""
    text_encoder: str = ""
    """A repository that replaces the large text encoder (T5 for FLUX)."""
    quantize: Literal["", "nf4"] = ""
    """`nf4`: transformer and large text encoder are quantized to 4 bits while they are loaded."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Floating-point type of the weights."""
    steps: int = 0
    """Denoising steps. 0: the pipeline's default."""
    guidance: float = -1.0
    """Guidance scale. Below 0: the pipeline's default."""
    max_text_tokens: int = 256
    """Longest prompt in tokens, for pipelines that do not have a limit of their own (FLUX)."""
    offload: bool = machine(False)
    """Keeps parts in main memory until they are needed: slower, for GPUs that cannot hold all parts."""


@dataclass
class DiffusersConfig(PipelineConfig, GeneratorConfig):
    """A text-to-image pipeline."""


@dataclass
class DiffusersEditorConfig(PipelineConfig, EditorConfig):
    """A pipeline that edits images by instructions."""


class _Pipeline(Component):
    imports = ("openmaia.models.generators.batching",)

    @classmethod
    def build(cls, config: Any, site: Site) -> Self:
        make = cast(Any, cls)
        return make(config, site.key)

    @staticmethod
    def checks(config: Any, site: Site) -> Iterator[Any]:
        if config.quantize and not site.gpus:
            yield lambda: _no_gpu(config, site)

    @staticmethod
    def packages(config: Any, site: Site) -> Iterator[tuple[str, str, str]]:
        if config.quantize:
            yield f"quantize={config.quantize}", "bitsandbytes", install_command("quantized")

    @staticmethod
    def weights(config: Any, site: Site) -> Iterator[WeightSource]:
        itemsize = NF4 if config.quantize else 4 if config.dtype == "float32" else 2
        own = {"transformer": (config.transformer, DENOISERS), "text_encoder": (config.text_encoder, TEXT_ENCODERS)}
        skipped = tuple(candidates for given, candidates in own.values() if given)
        common = {"role": site.pool, "itemsize": itemsize, "is_offloaded": config.offload}
        yield WeightSource(key=f"{site.key}.model", given=config.model, skipped=skipped, **common)
        for option, (given, _) in own.items():
            if given:
                yield WeightSource(key=f"{site.key}.{option}", given=given, **common)


def _no_gpu(config: Any, site: Site) -> Check:
    return missing(f"{site.key}.quantize={config.quantize} needs a GPU; set pools.{site.pool}.num_gpus")


class DiffusersGenerator(_Pipeline):
    """Generates square images of one size. If the model cannot, larger images are scaled down.

    Raises:
        UsageError: The model cannot be loaded or cannot generate images. The message names the config key.
    """

    Config: ClassVar = DiffusersConfig

    def __init__(self, config: DiffusersConfig, key: str = "generator"):
        from openmaia.models.generators.batching import DiffusionBatcher

        self._batcher = DiffusionBatcher(config, "generator", key)
        self._config, self._key = config, key
        self._size = config.size
        self._model_size = -(-config.size // self._batcher.grid) * self._batcher.grid
        self._batch_size = 1 if self._batcher.name in ALONE else None
        self._batcher.try_out(self._job(Generation(prompt="a red ball", seed=0)))

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        """Raises ServiceError if an image does not fit or the model failed, HostDead if the GPU is lost."""
        from openmaia.models.generators.resizing import resize

        images = self._batcher.generate([self._job(request) for request in requests], self._batch_size)
        return [
            GeneratedImage(
                image=EncodedImage.of(resize(pixels, self._size, self._size)),
                missing_terms=self._batcher.truncated(request.prompt),
            )
            for request, pixels in zip(requests, images, strict=True)
        ]

    def prepare_edits(self) -> None:
        self._batcher.require_edits()
        self._editing = DiffusersEditor(self._config, self._key, self._batcher)

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """Edits images, after `prepare_edits`. Raises as `generate`."""
        return self._editing.edit(requests)

    def _job(self, request: Generation) -> Any:
        from openmaia.models.generators.batching import ImageJob

        return ImageJob(prompt=request.prompt, seed=request.seed, height=self._model_size, width=self._model_size)


class DiffusersEditor(_Pipeline):
    """Edits images by instructions. The result has the size and the `sources` of the original.

    Raises:
        UsageError: The model cannot be loaded or cannot edit images. The message names the config key.
    """

    Config: ClassVar = DiffusersEditorConfig

    def __init__(self, config: PipelineConfig, key: str = "editor", batcher: Any = None):
        """`batcher`: that of a generator whose pipeline edits, too. None: the pipeline is loaded."""
        import numpy as np

        from openmaia.models.generators.batching import DiffusionBatcher

        self._batcher = batcher or DiffusionBatcher(config, "editor", key)
        self._batch_size = None if self._batcher.name in BATCHING else 1
        grey = EncodedImage.of(np.full((256, 256, 3), 128, np.uint8))
        self._batcher.try_out(self._job(Edit(image=grey, instruction="add a red ball", seed=0)))

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """Raises as `DiffusersGenerator.generate`."""
        from openmaia.models.generators.resizing import resize

        edited = self._batcher.generate([self._job(request) for request in requests], self._batch_size)
        results: list[GeneratedImage] = []
        for request, pixels in zip(requests, edited, strict=True):
            height, width = request.image.pixels.shape[:2]
            image = EncodedImage.of(resize(pixels, height, width), request.image.sources)
            results.append(GeneratedImage(image=image, missing_terms=self._batcher.truncated(request.instruction)))
        return results

    def _job(self, request: Edit) -> Any:
        from PIL import Image

        from openmaia.models.generators.batching import ImageJob

        image = request.image.pil()
        if self._batcher.name in AT_A_MEGAPIXEL:
            height, width = megapixel_size(image.height, image.width)
        else:
            height, width = editing_size(image.height, image.width, self._batcher.grid)
            image = image.resize((width, height), Image.Resampling.LANCZOS)
        return ImageJob(prompt=request.instruction, seed=request.seed, height=height, width=width, image=image)


def megapixel_size(height: int, width: int) -> tuple[int, int]:
    """Returns the height and width at which the pipelines of `AT_A_MEGAPIXEL` read an image of a given size."""
    scale = (_MAX_PIXELS / (height * width)) ** 0.5
    height, width = (max(1, round(side * scale / _READ_GRID)) * _READ_GRID for side in (height, width))
    return height, width


def editing_size(height: int, width: int, grid: int) -> tuple[int, int]:
    """Returns the height and width, in multiples of `grid`, at which an image of a given size is edited."""
    shrink = min(1.0, (_MAX_PIXELS / (height * width)) ** 0.5)
    smallest = -(-_MIN_SIDE // grid)
    return max(smallest, round(height * shrink / grid)) * grid, max(smallest, round(width * shrink / grid)) * grid
