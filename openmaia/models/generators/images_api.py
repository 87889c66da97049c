"""The generator and the editor `openai`: a server with OpenAI's images API."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from omegaconf import MISSING
from PIL import Image, ImageOps

from openmaia.core.checks import Check
from openmaia.core.components import Component, EditorConfig, GeneratorConfig, Site, machine
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.models.generators.resizing import resize
from openmaia.models.server_access import ServerAccess, server_check

_SHAPING = ("model", "request_size", "quality", "seed", "arguments")

# A missing term of what the server refuses to draw.
REFUSED = "everything (the server refuses this text)"

GREY = 128


@dataclass
class ImageServerConfig:
    """The keys of a server with OpenAI's images API. The API key is read from OPENAI_API_KEY."""

    model: str = MISSING
    """The name of the model on the server."""
    base_url: str = machine("")
    """Address of the server. Empty: that of OpenAI."""
    request_size: str = "1024x1024"
    """The size of the images that are requested, width and height in pixels: one of those that the model offers.
    Generated images are then scaled to `size`, edited ones to the size of the original."""
    quality: str = ""
    """The quality that is requested, such as `low`. Empty: the server's default."""
    seed: bool = False
    """Whether the server takes a seed. Without seeds, the same request gives another image each time. Images are then
    reproducible only as long as they are in the cache (`pools.generator.spill_mb`), and reports say so."""
    concurrency: int = machine(4)
    """Largest number of concurrent requests to the server."""
    timeout: float = machine(180.0)
    """Longest time for an image in seconds."""
    tries: int = machine(6)
    """Attempts of a request to a server that is overloaded or unreachable."""
    image_price: float | None = machine(None, zero=True)
    """US dollars for an image. null: the price for `request_size` and `quality` in `prices.file` or of this package."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the request by name, such as `{style: natural}`."""


@dataclass
class ApiConfig(ImageServerConfig, GeneratorConfig):
    """A server that draws."""


@dataclass
class ApiEditorConfig(ImageServerConfig, EditorConfig):
    """A server that edits."""


def server_access(config: ImageServerConfig, key: str) -> ServerAccess:
    """Returns how the server is reached. `key` is the config section, for messages."""
    return ServerAccess(
        section=key,
        kind=f"{key}.kind='openai'",
        model=config.model,
        base_url=config.base_url,
        address=_Served.address,
        address_hint="the base_url of most servers ends with /v1",
        key_variable="OPENAI_API_KEY",
        keys=tuple(f"{key}.{each}" for each in _SHAPING),
    )


class _Served(Component):
    is_served = True
    price_keys = ("image_price",)
    address = "https://api.openai.com/v1"

    def __init__(self, config: Any, key: str):
        from openmaia.models.generators.images_client import ImagesApi

        self._api = ImagesApi(config, key)

    @classmethod
    def build(cls, config: Any, site: Site) -> Self:
        return cls(config, site.key)

    @staticmethod
    def problems(config: Any, site: Site) -> Iterator[str]:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", config.request_size):
            yield f"{site.key}.request_size={config.request_size!r}; expected width and height, such as 1024x1024"

    @staticmethod
    def remark(config: Any) -> str:
        return "" if config.seed else "without seeds, not reproducible"

    @staticmethod
    def checks(config: Any, site: Site) -> Iterator[Callable[[], Check]]:
        yield partial(server_check, "openai", partial(server_access, config, site.key), waits=site.waits)


class ApiGenerator(_Served):
    """Generates square images of one size: the server's are scaled to it and cropped."""

    Config: ClassVar = ApiConfig

    def __init__(self, config: ApiConfig, key: str = "generator"):
        super().__init__(config, key)
        self._size = config.size

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        """A refused prompt gives a grey image with REFUSED among its `missing_terms`. Raises as `ImagesApi.draw`."""
        return self._api.each(self._draw, requests)

    def _draw(self, request: Generation) -> GeneratedImage:
        pixels = self._api.draw(request.prompt, request.seed)
        if pixels is None:
            grey = np.full((self._size, self._size, 3), GREY, np.uint8)
            return GeneratedImage(image=EncodedImage.of(grey), missing_terms=(REFUSED,))
        square = ImageOps.fit(Image.fromarray(pixels), (self._size, self._size), Image.Resampling.LANCZOS)
        return GeneratedImage(image=EncodedImage.of(np.asarray(square)), bill=self._api.bill)


class ApiEditor(_Served):
    """Edits images by instructions. The result has the size and the `sources` of the original."""

    Config: ClassVar = ApiEditorConfig

    def __init__(self, config: ApiEditorConfig, key: str = "editor"):
        super().__init__(config, key)

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """A refused instruction gives the original with REFUSED among its `missing_terms`. Raises as `ImagesApi.draw`."""
        return self._api.each(self._draw, requests)

    def _draw(self, request: Edit) -> GeneratedImage:
        original, buffer = request.image.pil(), io.BytesIO()
        # The original is scaled and padded to the requested shape, and the padding is cut off afterwards.
        width, height = self._api.width, self._api.height
        inner = ImageOps.contain(original, (width, height)).size
        ImageOps.pad(original, (width, height)).save(buffer, "PNG")
        pixels = self._api.draw(request.instruction, request.seed, buffer.getvalue())
        if pixels is None:
            return GeneratedImage(image=request.image, missing_terms=(REFUSED,))
        left, top = (width - inner[0]) // 2, (height - inner[1]) // 2
        inside = resize(pixels, height, width)[top : top + inner[1], left : left + inner[0]]
        edited = resize(np.ascontiguousarray(inside), original.height, original.width)
        return GeneratedImage(image=EncodedImage.of(edited, request.image.sources), bill=self._api.bill)
