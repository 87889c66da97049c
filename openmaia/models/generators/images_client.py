"""A client of OpenAI's images API."""

import base64
import json
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import openai

from openmaia.core.errors import ServiceError, ServiceUnavailable, UsageError
from openmaia.core.images import Pixels, decode
from openmaia.core.money import Bill
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.models.backbones.failures import Failure, client_failure
from openmaia.models.backbones.outage import Outage
from openmaia.models.backbones.wordings import Refusal
from openmaia.models.generators.images_api import ImageServerConfig, server_access
from openmaia.models.pace import CALL_SECONDS, pace_of
from openmaia.models.server_access import CONNECT_SECONDS, SEEDS
from openmaia.models.settling import settle

ImageRequest = TypeVar("ImageRequest", Generation, Edit)

# Servers reject larger ones.

log = logging.getLogger(__name__)


class ImagesApi:
    """A client of OpenAI's images API. Thread-safe. The API key is never pickled."""

    def __init__(self, config: ImageServerConfig, key: str):
        """Checks address and key, and raises UsageError. Does not connect, because every image costs money."""
        self._config, self._key = config, key
        self.access = server_access(config, key)
        self.access.check()
        self._outage = Outage(self.access.shown(self.access.url))
        self._omitted: set[str] = set()
        self._pace = pace_of(self.access.url, self.access.shown(self.access.url))
        self.width, self.height = map(int, config.request_size.split("x"))

    def __reduce__(self):
        return type(self), (self._config, self._key)

    @cached_property
    def _client(self) -> openai.OpenAI:
        config = self._config
        return openai.OpenAI(
            api_key=self.access.key(),
            base_url=self.access.url,
            timeout=openai.Timeout(config.timeout, connect=min(config.timeout, CONNECT_SECONDS)),
            max_retries=config.tries - 1,
            http_client=openai.DefaultHttpxClient(
                event_hooks={"response": [partial(self.access.retry, outage=self._outage)]}
            ),
        )

    @property
    def bill(self) -> Bill:
        """The bill of one image. One that the server refuses is free."""
        price = self._config.image_price
        return Bill(unpriced=1) if price is None else Bill(price)

    def each(
        self, draw: Callable[[ImageRequest], GeneratedImage], requests: Sequence[ImageRequest]
    ) -> list[GeneratedImage]:
        """Calls `draw` for each request, at most `config.concurrency` at a time."""
        if not requests:
            return []
        with ThreadPoolExecutor(min(len(requests), self._config.concurrency)) as threads:
            return settle([threads.submit(draw, request) for request in requests])

    def draw(self, prompt: str, seed: int, image: bytes | None = None) -> Pixels | None:
        """Requests one image, uint8 of shape (height, width, 3). None if the server refuses the prompt for its content.

        Args:
            seed: Sent if the config says that the server takes one.
            image: The image to edit, as PNG. None: an image is generated.

        Raises:
            ServiceUnavailable: The server cannot be reached or is overloaded.
            ServiceError: It gave no image.
            UsageError: It rejects the key, the model, the address or the seed.
        """
        self._outage.check()
        sent = time.monotonic()
        answer = self._ask(prompt, seed, image)
        if isinstance(answer, bytes):
            self._outage.end(sent)
            try:
                return self._decoded(answer)
            except ServiceError as error:
                error.bill += self.bill
                raise
        error = self.access.error(answer, was_answered=self._outage.answered > 0)
        if isinstance(error, ServiceUnavailable):
            if not answer.is_limited or (answer.wait_seconds or 0.0) > CALL_SECONDS:
                self._outage.begin(error.message, answer.wait_seconds)
            raise error
        self._outage.end()
        if answer.refusal is Refusal.CONTENT:
            log.warning("%s refuses to draw %r", self.access.shown(self.access.url), prompt[:200])
            return None
        if answer.refused(["seed"]):
            section = self.access.section
            raise UsageError(
                f"{self.access.url} takes no seed ({self.access.shown(answer.message)}); set {section}.seed=false"
            )
        raise error

    def _ask(self, prompt: str, seed: int, image: bytes | None) -> bytes | Failure:
        """An optional parameter that the server refuses is omitted from this and later requests."""
        config = self._config
        while True:
            # Some models always answer in base64 and refuse the first parameter; others answer with a URL without it.
            optional = {"response_format": "b64_json", **({"quality": config.quality} if config.quality else {})}
            optional = {name: value for name, value in optional.items() if name not in self._omitted}
            seeded = {"seed": seed % SEEDS} if config.seed else {}
            body = {"size": config.request_size, **seeded, **optional, **config.arguments}
            answer = self._pace.call(partial(self._send, prompt, image, body), repeats=config.tries > 1)
            refused = answer.refused(optional) if isinstance(answer, Failure) else None
            if refused is None:
                return answer
            if refused not in self._omitted:
                self._omitted.add(refused)
                log.warning("%s", self.access.left_out(refused))

    def _send(self, prompt: str, image: bytes | None, body: dict[str, Any]) -> bytes | Failure:
        images, text = self._client.images.with_raw_response, prompt.encode(errors="replace").decode()
        send = partial(images.edit, image=("image.png", image, "image/png")) if image else images.generate
        try:
            content = send(prompt=text, model=self._config.model, n=1, extra_body=body).http_response.text
        except (openai.APIStatusError, openai.APIConnectionError) as error:
            return client_failure(openai, error, self._config.timeout)
        try:
            return base64.b64decode(json.loads(content)["data"][0]["b64_json"], validate=True)
        except (ValueError, KeyError, TypeError, IndexError):
            return Failure(status=200, body=content)

    def _decoded(self, data: bytes) -> Pixels:
        try:
            return np.asarray(decode(data))
        except ValueError as error:
            raise ServiceError(f"{self.access.url} answered with an image that cannot be read: {error}") from error
