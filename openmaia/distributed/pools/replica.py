"""The replica actor, which holds one model and answers requests, and the description of a pool of replicas."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any
from uuid import uuid4

import ray
from cachetools import LRUCache
from ray.exceptions import RayError

from openmaia.config.machine import PoolConfig
from openmaia.core.errors import HostDead, OpenMaiaError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, waited_for
from openmaia.core.services import find_effects
from openmaia.distributed.gates import use_shared_gates
from openmaia.distributed.pools.dispatch.queueing import Stored
from openmaia.distributed.pools.loading import loading
from openmaia.distributed.pools.output import OutputReader

_IMAGE_CACHE_BYTES = 256 * 2**20
"""Size in bytes of the image cache of a backbone's replica."""


_FACTS: Mapping[str, Callable[[Any], Any]] = {"info": lambda host: host.info(), "effects": find_effects}
"""What a replica is asked about its model, which is the same for all requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """The description of a pool."""

    role: str
    """The name of the service in messages and metrics, such as "generator"."""
    make: Callable[[], Any]
    """Loads the model and returns the object that implements the service. Called in the process of the replica."""
    imports: tuple[str, ...] = ()
    """Modules that are imported before: `Component.imports`."""
    measures: bool = False
    """See `GpuUse.measures`."""
    config: PoolConfig
    concurrency: int = 0
    """Number of chats that a replica of a language model answers concurrently. 0 if the model processes one batch after
    another."""
    run: str = ""
    """The name of the run, for metrics."""
    max_waiting: int = 4096
    """Largest number of requests that are queued or being served. Further callers wait, first come, first served."""
    max_waiting_bytes: int = 512 << 20
    """Largest total size of the images in these requests."""


@dataclass(frozen=True, slots=True)
class LostRequest:
    """Stands for an answer if the process that stored the request or its images in Ray's object store has died."""

    reason: str


class ReplicaNotLoaded(HostDead):
    """Raised by a replica whose model is not loaded, because Ray has restarted its process after a death."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """Stands for an image in a chat. The image is in Ray's object store, only once for all chats of a conversation."""

    digest: str
    place: Stored


def pack_chat(chat: Chat, stored: dict[str, StoredImage]) -> Chat:
    """Returns a chat whose images are in Ray's object store.

    `stored` has the images that earlier calls have stored, by digest. The new ones are added to it.
    """
    images = {image.digest: image for message in chat.messages for image in message.images}
    new = [digest for digest in images if digest not in stored]
    if new:
        payload = ray.put([images[digest] for digest in new])
        stored |= {digest: StoredImage(digest, Stored(payload, index)) for index, digest in enumerate(new)}
    return _with_images(chat, lambda part: stored[part.digest] if isinstance(part, EncodedImage) else part)


def chat_key(chat: Chat) -> str:
    """Returns a hash that is equal for packed chats that ask the same with the same seed."""
    words = _with_images(chat, lambda part: ("image", part.digest) if isinstance(part, StoredImage) else part)
    return hashlib.sha256(repr(words).encode(errors="surrogatepass")).hexdigest()


class ImageCache:
    """A cache of the images that conversations on this replica used last, by digest. It is thread-safe."""

    def __init__(self, max_bytes: int = _IMAGE_CACHE_BYTES):
        self._images: LRUCache[str, EncodedImage] = LRUCache(max_bytes, getsizeof=lambda image: len(image.data))
        self._lock = threading.Lock()

    def unpack(self, chat: Chat) -> Chat:
        """Returns a packed chat with its images. Those that are not cached are fetched from Ray's object store."""
        parts: list[Any] = [part for message in chat.messages for part in message.parts]
        places = {part.digest: part.place for part in parts if isinstance(part, StoredImage)}
        with self._lock:
            known = {digest: self._images[digest] for digest in places if digest in self._images}
        missing = {digest: place for digest, place in places.items() if digest not in known}
        payloads = list({place.payload for place in missing.values()})
        fetched: dict[Any, list[EncodedImage]] = dict(zip(payloads, ray.get(payloads), strict=True))
        with self._lock:
            for digest, place in missing.items():
                known[digest] = fetched[place.payload][place.index]
                with suppress(ValueError):  # it is larger than the cache
                    self._images[digest] = known[digest]
        return _with_images(chat, lambda part: known[part.digest] if isinstance(part, StoredImage) else part)


def _with_images(chat: Chat, change: Callable[[Any], Any]) -> Chat:
    messages = [replace(message, parts=tuple(map(change, message.parts))) for message in chat.messages]
    return replace(chat, messages=messages)


@dataclass(slots=True)
class Replica:
    """A Ray actor that holds one model and answers requests. `PoolManager` starts it."""

    name: str
    """The role of the pool and the index of the replica, such as "generator-0"."""
    make: Callable[[], Any]
    """See `PoolSpec.make`, and for the two below likewise."""
    imports: tuple[str, ...] = ()
    measures: bool = False
    serial: bool = True
    """Whether the model must be called by one thread at a time."""
    num_gpus: float = 0.0
    _process: str = field(default_factory=lambda: uuid4().hex)
    _host: Any = None
    """The object that `make` returned; None until the model is loaded."""
    _loading: threading.Lock = field(default_factory=threading.Lock)
    _serving: threading.Lock = field(default_factory=threading.Lock)
    _running: set[int] = field(default_factory=set[int])
    """The threads that call the model now."""
    _images: ImageCache = field(default_factory=ImageCache)
    _output: OutputReader = field(default_factory=OutputReader)

    def __repr__(self) -> str:
        return self.name  # shown in Ray's dashboard and logs

    def process(self) -> str:
        """Returns a random id of this start of the process, as a sign of life. After a restart by Ray it is another."""
        return self._process

    def load(self) -> None:
        """Loads the model if it is not loaded yet. Raises whatever `make` raises."""
        with self._loading:
            if self._host is None:
                # For processes that vLLM starts: a machine may run several clusters.
                os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
                if not self.num_gpus:
                    hide_gpus()
                for module in self.imports:
                    import_module(module)
                use_shared_gates()
                with loading(self._shared_gpu(), measures=self.measures):
                    self._host = self.make()

    def _shared_gpu(self) -> str:
        """The id of the GPU of which this replica has a fraction; otherwise empty."""
        return "-".join(ray.get_runtime_context().get_accelerator_ids()["GPU"]) if 0 < self.num_gpus < 1 else ""

    def output(self) -> list[str]:
        """Returns the lines that this process and its children have written since the last call."""
        return self._output.read()

    def answer(self, method: str, places: Sequence[Stored]) -> tuple[list[Any], float]:
        """Answers one batch of requests with a method of the model.

        Returns:
            One answer for each request, or a `LostRequest` if the request could not be read. And the seconds that the
            model took, divided by the number of batches that it answered when it began.

        Raises:
            ReplicaNotLoaded: If the model is not loaded.
            Exception: Any exception of the model. No request of the batch is answered then but those of
                `OpenMaiaError.answers`.
        """
        payloads: dict[Any, Any] = {}
        values = [self._read(place, payloads) for place in places]
        readable = [at for at, request in enumerate(values) if not isinstance(request, LostRequest)]
        try:
            answers, seconds = self._call(method, [values[at] for at in readable])
        except OpenMaiaError as error:
            error.answers = {readable[number]: answer for number, answer in error.answers.items()}
            raise
        except StopIteration as error:  # it would end the coroutine that waits for the answer
            raise RuntimeError(str(error) or type(error).__name__) from error
        for at, answer in zip(readable, answers, strict=True):
            values[at] = answer
        return values, seconds

    def _call(self, method: str, requests: list[Any]) -> tuple[list[Any], float]:
        if self._host is None:
            raise ReplicaNotLoaded(f"{self.name} was restarted and is not loaded")
        if not requests:
            return [], 0.0
        with self._serving if self.serial else nullcontext():
            thread = threading.get_ident()
            self._running.add(thread)
            began, sharing = time.monotonic(), len(self._running)
            try:
                answers = (
                    [_FACTS[method](self._host)] * len(requests)
                    if method in _FACTS
                    else getattr(self._host, method)(requests)
                )
            finally:
                self._running.discard(thread)
        return answers, max(time.monotonic() - began - waited_for(answers), 0.0) / sharing

    def _read(self, place: Stored, payloads: dict[Any, Any]) -> Any:
        try:
            if place.payload not in payloads:
                payloads[place.payload] = ray.get(place.payload)
            request = payloads[place.payload][place.index]
            return self._images.unpack(request) if isinstance(request, Chat) else request
        except RayError as error:
            return LostRequest(f"{type(error).__name__}: the process that asked has died")


def hide_gpus() -> None:
    """Keeps the models of this process on the CPU. Call it before PyTorch looks for GPUs."""
    # Ray shows all GPUs of the node to a process that has requested none. They are those of others.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
