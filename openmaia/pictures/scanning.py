"""Decodes pictures once, a few at a time, and counts what is not used and why."""

import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from openmaia.errors import UsageError
from openmaia.pictures.places import Source
from openmaia.pictures.reading import Skipped, Unusable, read
from openmaia.pictures.split import PictureFile, fingerprint

AHEAD = 2
"""Pictures per thread that wait to be decoded: an archive has handed over their bytes by then."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A picture whose bytes were read along with those of its neighbours."""

    source: Source
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """files: in the order of their sources. skipped: number of pictures by reason, only reasons that occurred."""

    files: tuple[PictureFile, ...]
    skipped: dict[Skipped, int]

    def describe(self) -> str:
        left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(self.skipped.items()))
        return f"{len(self.files)} pictures" + (f"; skipped: {left_out}" if left_out else "")


def scan(found: Iterable[Source | Loaded | Skipped], root: str, wanted: str) -> Scan:
    """A bad picture is counted; UsageError where none is left. wanted: what root should have been."""
    files: list[PictureFile] = []
    skipped: Counter[Skipped] = Counter()
    with warnings.catch_warnings():
        # Pillow warns of large pictures and odd metadata; here, because the filter is no matter of one thread.
        warnings.simplefilter("ignore")
        for result in _results(found):
            if isinstance(result, Skipped):
                skipped[result] += 1
            else:
                files.append(result)
    scanned = Scan(files=tuple(files), skipped=dict(skipped))
    if not files:
        raise UsageError(
            f"{root} holds no usable picture ({scanned.describe()}); {wanted} was expected; name another folder"
        )
    return scanned


def _results(found: Iterable[Source | Loaded | Skipped]) -> Iterator[PictureFile | Skipped]:
    """In order. What is found is asked for no faster than it is decoded."""
    threads = min(16, os.cpu_count() or 1)
    waiting: deque[Future[PictureFile | Skipped]] = deque()
    with ThreadPoolExecutor(threads) as pool:  # decoding and hashing release the GIL
        for one in found:
            waiting.append(pool.submit(_examine, one))
            if len(waiting) > AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _examine(found: Source | Loaded | Skipped) -> PictureFile | Skipped:
    if isinstance(found, Skipped):
        return found
    try:
        source, data = (found.source, found.data) if isinstance(found, Loaded) else (found, found.read())
        decoded = read(data, source.name)
    except Unusable as error:
        return error.reason
    return PictureFile(source=source, digest=decoded.digest, fingerprint=fingerprint(decoded.image))
