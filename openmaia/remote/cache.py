"""Pictures that were drawn already, by what they were drawn from: shared by all agents, kept in memory and on disk.

Memory holds what was used last, up to a number of bytes. Every picture is also written to the run's directory, up to
another number of bytes, so that a resumed run, a restarted dispatcher and the evaluation find it. The disk is best
effort: where it fails, pictures are drawn again.
"""

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from openmaia.errors import StoreError
from openmaia.images import Picture
from openmaia.services import Drawn, Edit, Generation
from openmaia.store.files import Files

Request = Generation | Edit

BEHIND = 64
"""Pictures that may wait to be written; what comes while the disk is that far behind is kept in memory only."""

FORMAT = b"openmaia drawn 2\n"
"""What is sealed otherwise is not read."""

FAILURES = (StoreError, OSError)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a cache may hold. identity: of the model and its parameters, so that another one's pictures are never served.
    memory, disk: bytes; with disk=0 nothing is written."""

    identity: str
    memory: int
    disk: int
    files: Files
    folder: str


class Cache:
    """`recall` and `keep` are for one thread; `read` may be called from any other one."""

    def __init__(self, kept: Kept):
        self._identity, self._bound = kept.identity, kept.memory
        self._held: OrderedDict[str, Drawn] = OrderedDict()
        self._bytes = 0
        self._disk = Disk(kept.files, kept.folder, kept.disk) if kept.disk else None
        self.hits = self.misses = self.joined = 0

    def key(self, request: Request) -> str:
        """Equal for requests that have to be answered with the same picture."""
        match request:
            case Generation():
                drawn_from = ("generate", request.prompt, request.seed, request.half)
            case Edit(picture=given):
                # What an editor knows of a picture beyond its pixels is in the answer as well.
                base = (given.digest, given.recipe, *given.sources)
                drawn_from = ("edit", base, request.instruction, request.seed, request.half)
        return hashlib.sha256(json.dumps([self._identity, *drawn_from]).encode()).hexdigest()

    def recall(self, key: str) -> Drawn | None:
        """From memory."""
        drawn = self._held.get(key)
        if drawn is not None:
            self._held.move_to_end(key)
        return drawn

    def on_disk(self, key: str) -> bool:
        """Whether `read` is worth its time."""
        return self._disk is not None and key in self._disk

    def read(self, key: str) -> Drawn | None:
        """From disk. None where it is not there, or damaged."""
        return self._disk.read(key) if self._disk else None

    def keep(self, key: str, drawn: Drawn) -> None:
        """Returns at once; what is new is written to disk by and by."""
        if self._disk is not None and key not in self._disk:
            self._disk.write_later(key, drawn)
        if key in self._held:
            return
        self._held[key] = drawn
        self._bytes += size(drawn)
        while self._bytes > self._bound:
            _, oldest = self._held.popitem(last=False)
            self._bytes -= size(oldest)

    def flush(self) -> None:
        """Waits until everything is written."""
        if self._disk is not None:
            self._disk.flush()


def size(drawn: Drawn) -> int:
    """Bytes in memory, near enough: besides the picture there are a few words."""
    words = sum(map(len, (*drawn.picture.sources, drawn.picture.recipe, *drawn.undrawn)))
    return len(drawn.picture.data) + words + 1000


class Disk:
    """A file per picture, named by its key. One thread lists, writes and deletes; reading is done by whoever asks."""

    def __init__(self, files: Files, folder: str, bound: int):
        self._files, self._folder, self._bound = files, folder, bound
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Used last at the end."""
        self._bytes = 0
        self._lock = threading.Lock()
        self._behind = 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="cache")
        self._later(self._list)

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def flush(self) -> None:
        self._writer.submit(lambda: None).result()

    def read(self, key: str) -> Drawn | None:
        try:
            data = self._files.read(self._name(key))
        except FAILURES as error:
            _log.warning("a cached picture could not be read: %s", error)
            data = None
        drawn = unpack(key, data) if data is not None else None
        with self._lock:
            if drawn is None:
                self._bytes -= self._sizes.pop(key, 0)
            elif key in self._sizes:
                self._sizes.move_to_end(key)
        return drawn

    def write_later(self, key: str, drawn: Drawn) -> None:
        if self._behind < BEHIND:
            self._later(self._write, key, drawn)

    def _later(self, work: Callable[..., None], *given: Any) -> None:
        with self._lock:
            self._behind += 1
        self._writer.submit(self._careful, work, *given)

    def _careful(self, work: Callable[..., None], *given: Any) -> None:
        try:
            work(*given)
        except FAILURES as error:
            _log.warning("the cache of pictures: %s", error)
        finally:
            with self._lock:
                self._behind -= 1

    def _list(self) -> None:
        """What an earlier process of this run has left."""
        for name, size in self._files.sized(self._folder).items():
            self._enter(name.rsplit("/", 1)[-1], size)

    def _write(self, key: str, drawn: Drawn) -> None:
        data = pack(key, drawn)
        if key in self or len(data) > self._bound:
            return
        self._files.write(self._name(key), data)
        self._enter(key, len(data))

    def _enter(self, key: str, size: int) -> None:
        """Also deletes what has not been used for the longest time, as far as the bound asks for it."""
        with self._lock:
            self._sizes[key] = size
            self._bytes += size
            leaving: list[str] = []
            while self._bytes > self._bound:
                oldest, its_size = self._sizes.popitem(last=False)
                self._bytes -= its_size
                leaving.append(oldest)
        for oldest in leaving:
            self._files.delete(self._name(oldest))

    def _name(self, key: str) -> str:
        return f"{self._folder}/{key}"


def pack(key: str, drawn: Drawn) -> bytes:
    """A digest of what follows, a line of JSON, and the encoded picture as it is."""
    picture = drawn.picture
    words = {"sources": picture.sources, "recipe": picture.recipe, "undrawn": drawn.undrawn, "vouched": drawn.vouched}
    body = json.dumps(words).encode() + b"\n" + picture.data
    return _seal(key, body) + body


def unpack(key: str, data: bytes) -> Drawn | None:
    """None for anything else than what `pack` made for this key, whole."""
    seal, body = data[:32], data[32:]
    if seal != _seal(key, body):
        return None
    line, _, encoded = body.partition(b"\n")
    words = json.loads(line)
    picture = Picture(data=encoded, sources=tuple(words["sources"]), recipe=words["recipe"])
    return Drawn(picture=picture, undrawn=tuple(words["undrawn"]), vouched=words["vouched"])


def _seal(key: str, body: bytes) -> bytes:
    return hashlib.sha256(FORMAT + key.encode() + body).digest()
