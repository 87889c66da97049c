"""The replica actor, which holds one model and answers requests, and the description of a pool of replicas."""

import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from filelock import FileLock
from ray.exceptions import RayError

from openmaia.config.machine import PoolConfig
from openmaia.core.errors import HostDead
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message
from openmaia.distributed.pools.dispatch.queueing import Stored
from openmaia.distributed.pools.output import OutputReader

_IMAGE_CACHE_BYTES = 256 * 2**20
"""Size in bytes of the image cache of a backbone's replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """The description of a pool."""

    role: str
    """The name of the service in messages and metrics, such as "generator"."""
    make: Callable[[], Any]
    """Loads the model and returns the object that implements the service. Called in the process of the replica."""
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


@dataclass(frozen=True, slots=True)
class ChatEnvelope:
    """A chat whose images are replaced by digests. The images are in Ray's object store, each only once."""

    chat: Chat
    images: Mapping[str, Stored]
    """By digest."""


class ReplicaNotLoaded(HostDead):
    """Raised by a replica whose model is not loaded, because Ray has restarted its process after a death."""


class ImageCache:
    """A cache of the images that conversations on this replica used last, by digest. It is thread-safe."""

    def __init__(self, max_bytes: int = _IMAGE_CACHE_BYTES):
        self._max_bytes, self._bytes = max_bytes, 0
        self._images: OrderedDict[str, EncodedImage] = OrderedDict()
        self._lock = threading.Lock()

    def unpack(self, envelope: ChatEnvelope) -> Chat:
        """Returns the chat with its images. Images that are not cached are fetched from Ray's object store."""
        with self._lock:
            known = {digest: self._images[digest] for digest in envelope.images if digest in self._images}
        missing = {digest: place for digest, place in envelope.images.items() if digest not in known}
        payloads = list({place.payload for place in missing.values()})
        fetched: dict[Any, list[EncodedImage]] = dict(zip(payloads, ray.get(payloads), strict=True))
        known |= {digest: fetched[place.payload][place.index] for digest, place in missing.items()}
        with self._lock:
            for digest in envelope.images:
                self._keep(digest, known[digest])
        return replace(envelope.chat, messages=[_with_images(message, known) for message in envelope.chat.messages])

    def _keep(self, digest: str, image: EncodedImage) -> None:
        if digest not in self._images:
            self._bytes += len(image.data)
        self._images[digest] = image
        self._images.move_to_end(digest)
        while self._bytes > self._max_bytes and len(self._images) > 1:
            _, oldest = self._images.popitem(last=False)
            self._bytes -= len(oldest.data)


@dataclass(frozen=True, slots=True)
class ImageDigest:
    """Stands for an image in a chat that is sent to a replica."""

    digest: str


def pack_chat(chat: Chat, places: dict[str, Stored]) -> ChatEnvelope:
    """Returns a chat with digests in place of its images, and stores new images in Ray's object store.

    `places` holds references to the images that earlier calls have stored, by digest. The new ones are added to it.
    """
    images = {image.digest: image for message in chat.messages for image in message.images}
    new = [digest for digest in images if digest not in places]
    if new:
        payload = ray.put([images[digest] for digest in new])
        places |= {digest: Stored(payload, index) for index, digest in enumerate(new)}
    messages = [_without_images(message) for message in chat.messages]
    return ChatEnvelope(replace(chat, messages=messages), {digest: places[digest] for digest in images})


def _without_images(message: Message) -> Message:
    parts: list[Any] = [ImageDigest(part.digest) if isinstance(part, EncodedImage) else part for part in message.parts]
    return replace(message, parts=tuple(parts))


def _with_images(message: Message, images: Mapping[str, EncodedImage]) -> Message:
    parts = tuple(images[part.digest] if isinstance(part, ImageDigest) else part for part in message.parts)
    return replace(message, parts=parts)


@dataclass(slots=True)
class Replica:
    """A Ray actor that holds one model and answers requests. `PoolManager` starts it."""

    name: str
    """The role of the pool and the index of the replica, such as "generator-0"."""
    make: Callable[[], Any]
    """See `PoolSpec.make`."""
    serial: bool = True
    """Whether the model must be called by one thread at a time."""
    num_gpus: float = 0.0
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

    def node(self) -> str:
        """Returns the id of the Ray node on which this replica runs. An answer also shows that the replica is alive."""
        return ray.get_runtime_context().get_node_id()

    def load(self) -> None:
        """Loads the model if it is not loaded yet. Raises whatever `make` raises."""
        with self._loading:
            if self._host is None:
                # For processes that vLLM starts: a machine may run several clusters.
                os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
                with _loading_turn(self.num_gpus):
                    self._host = self.make()

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
            Exception: Any exception of the model. No request of the batch is answered then.
        """
        payloads: dict[Any, Any] = {}
        values = [self._read(place, payloads) for place in places]
        readable = [at for at, request in enumerate(values) if not isinstance(request, LostRequest)]
        answers, seconds = self._call(method, [values[at] for at in readable])
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
                    [self._host.info()] * len(requests) if method == "info" else getattr(self._host, method)(requests)
                )
            finally:
                self._running.discard(thread)
        return answers, (time.monotonic() - began) / sharing

    def _read(self, place: Stored, payloads: dict[Any, Any]) -> Any:
        try:
            if place.payload not in payloads:
                payloads[place.payload] = ray.get(place.payload)
            request = payloads[place.payload][place.index]
            return self._images.unpack(request) if isinstance(request, ChatEnvelope) else request
        except RayError as error:
            return LostRequest(f"{type(error).__name__}: the process that asked has died")


def _loading_turn(num_gpus: float) -> AbstractContextManager[object]:
    # While vLLM loads, it takes all growth of the GPU's used memory for its own, and sizes its KV cache by what is left.
    # The weights of another replica that shares the GPU must not arrive meanwhile. The system releases the lock of a
    # process that dies.
    if not 0 < num_gpus < 1:
        return nullcontext()
    gpu = "-".join(ray.get_runtime_context().get_accelerator_ids()["GPU"])
    return FileLock(Path(tempfile.gettempdir()) / f"openmaia-{os.getuid()}-gpu-{gpu}.lock")
