"""Cache of generated images, shared by all agents. The cache key is a hash of the model and the request.

The most recently used images are in memory. A larger cache is on disk, in the user's cache folder, so that a restarted
dispatcher, a resumed run and the evaluation can use it. If the disk fails, images are generated again.
"""

import hashlib
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.distributed.pools.dispatch.disk_cache import DiskCache

_MAX_PENDING_WRITES = 64
"""Largest number of images that wait to be written to disk. While it is reached, new images are kept in memory only."""

FORMAT = b"openmaia generated image 4\n"
"""Version of the file format. It is part of the checksum, so that files of other versions are not read."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSpec:
    """The settings of a cache of generated images."""

    identity: str
    """Identifies the model and its parameters. It is part of the cache key, so that models do not share images."""
    memory_bytes: int
    disk_bytes: int
    """0 disables the cache on disk."""
    folder: str


def cache_key(identity: str, request: Generation | Edit) -> str:
    """Returns a hash that is equal for requests that must yield the same image."""
    match request:
        case Generation():
            parts = ("generate", request.prompt, request.seed, request.split)
        case Edit(image=image):
            # The edited image also depends on the recipe and the sources of the image, not only on its pixels.
            origin = (image.digest, image.recipe, *image.sources)
            parts = ("edit", origin, request.instruction, request.seed, request.split)
    return hashlib.sha256(json.dumps([identity, *parts]).encode()).hexdigest()


class GenerationCache:
    """The cache of one pool. `get_from_disk` is thread-safe. All other methods must be called from one thread."""

    def __init__(self, spec: CacheSpec):
        self._images: LRUCache[str, GeneratedImage] = LRUCache(spec.memory_bytes, getsizeof=_size)
        self._disk = _open(spec) if spec.disk_bytes else None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="cache")
        self._pending = threading.Semaphore(_MAX_PENDING_WRITES)

    def get_from_memory(self, key: str) -> GeneratedImage | None:
        """Returns None if the image is not in memory."""
        return self._images.get(key)

    def is_on_disk(self, key: str) -> bool:
        """The check is quick; reading may still fail."""
        try:
            return self._disk is not None and key in self._disk
        except OSError:
            return False

    def get_from_disk(self, key: str) -> GeneratedImage | None:
        """Returns None if the image is not on disk or cannot be read.

        A file that holds something else is deleted, so that the image can be stored again.
        """
        if self._disk is None:
            return None
        try:
            data = self._disk.read(key)
        except OSError as error:
            _log.warning("a cached image could not be read: %s", error)
            data = b""
        image = None if data is None else unpack(key, data)
        if image is None:
            self._disk.delete(key)
        return image

    def put(self, key: str, image: GeneratedImage) -> None:
        """Stores an image. A thread writes it to disk later."""
        if key in self._images:
            return
        if self._disk is not None and self._pending.acquire(blocking=False):
            self._writer.submit(self._write, self._disk, key, image)
        with suppress(ValueError):  # it is larger than the memory
            self._images[key] = image

    def flush(self) -> None:
        """Waits until all images are written to disk."""
        self._writer.submit(lambda: None).result()

    def _write(self, disk: DiskCache, key: str, image: GeneratedImage) -> None:
        try:
            if key not in disk:
                disk.write(key, pack(key, image))
        except OSError as error:
            _log.warning("an image could not be cached: %s", error)
        finally:
            self._pending.release()


def _open(spec: CacheSpec) -> DiskCache | None:
    try:
        return DiskCache(Path(spec.folder), spec.disk_bytes)
    except OSError as error:
        _log.warning("generated images are not cached on disk (%s): %s", spec.folder, error)
        return None


def _size(image: GeneratedImage) -> int:
    words = sum(map(len, (*image.image.sources, image.image.recipe, *image.missing_terms)))
    return len(image.image.data) + words + 1000


def pack(key: str, image: GeneratedImage) -> bytes:
    """Encodes an image: a SHA-256 checksum that also covers the cache key, a line of JSON, and the encoded pixels."""
    encoded = image.image
    words = {
        "sources": encoded.sources,
        "recipe": encoded.recipe,
        "missing_terms": image.missing_terms,
        "verified_by": image.verified_by,
    }
    body = json.dumps(words).encode() + b"\n" + encoded.data
    return _checksum(key, body) + body


def unpack(key: str, data: bytes) -> GeneratedImage | None:
    """Decodes what `pack` returned for the same key. Returns None for all other bytes, such as damaged ones."""
    checksum, body = data[:32], data[32:]
    if checksum != _checksum(key, body):
        return None
    line, _, encoded = body.partition(b"\n")
    try:
        return _image(json.loads(line), encoded)
    except (ValueError, TypeError, LookupError, RecursionError):  # the checksum is no secret: anyone could have made it
        return None


def _image(words: Any, encoded: bytes) -> GeneratedImage:
    sources, recipe = tuple(words["sources"]), words["recipe"]
    missing, verified_by = tuple(words["missing_terms"]), words["verified_by"]
    if not all(isinstance(text, str) for text in (*sources, recipe, *missing, verified_by)):
        raise TypeError("expected texts")
    image = EncodedImage(data=encoded, sources=sources, recipe=recipe)
    _ = image.digest  # decodes it: what is no image is refused here, and nobody has to decode it for its digest again
    return GeneratedImage(image=image, missing_terms=missing, verified_by=verified_by)


def _checksum(key: str, body: bytes) -> bytes:
    return hashlib.sha256(FORMAT + key.encode() + body).digest()
