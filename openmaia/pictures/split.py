"""Divides pictures for good: hypotheses are formed on one half ("explore"), descriptions are tested on the other.

Content decides: not names, not order, not what else is there. Near-duplicates, that is copies resized, re-encoded or
mirrored, stay together, for a test on a copy of what was explored would prove nothing.

A group of near-duplicates goes where the hash of its smallest digest says. Limitation: a new picture moves others only
inside its own near-duplicate group, but there it may: when its digest is the smallest, or when it joins two groups.
Crops, rotations and recoloured copies are not recognised as duplicates.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.images import flatten
from openmaia.pictures.places import Source

Half = Literal["explore", "test"]

FILE = ".openmaia-split.json"
"""Hidden, and under a name that no dataset uses: it lies in the folder of whoever has the pictures."""

HASH_DISTANCE = 12
"""Bits of 64 in which the perceptual hashes of near-duplicates may differ."""

COLOUR_DISTANCE = 10.0
"""Mean difference, of 255, between the small thumbnails of near-duplicates: many shapes are alike but for colour."""

FLAT_COLOUR_DISTANCE = 1.5
"""The same between flat pictures. They all have one hash, so colour alone tells them apart, and were it to do so less
strictly, a row of shades would join the first to the last."""

_SALT = b"openmaia split 7036\n"
"""Chosen once, of 30,000, before any experiment: it spreads the kinds of packaged cut-outs most evenly. A change of it
re-deals every picture."""

_FLAT = 2.0
_SIDE, _FREQUENCIES, _THUMBNAIL = 32, 8, 8
_BLOCK, _PAIRS = 256, 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What near-duplicates share. hash, mirrored: 64 bits each. thumbnail: 8 x 8 RGB bytes."""

    hash: int
    mirrored: int
    thumbnail: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFile:
    source: Source
    digest: str
    fingerprint: Fingerprint


def fingerprint(image: Image.Image) -> Fingerprint:
    """Any mode; transparency is laid on white."""
    small = flatten(image).resize((_SIDE, _SIDE), Image.Resampling.BOX, reducing_gap=2.0)
    grey = np.asarray(small.convert("L"), dtype=np.float64)
    return Fingerprint(
        hash=_perceptual_hash(grey),
        mirrored=_perceptual_hash(grey[:, ::-1]),
        thumbnail=small.resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX).tobytes(),
    )


def split(files: Iterable[PictureFile]) -> dict[str, Half]:
    """Digest to half."""
    known = {file.digest: file.fingerprint for file in files}
    digests = sorted(known)
    leaders = _group(len(digests), _near_duplicates([known[digest] for digest in digests]))
    return {digest: _half(digests[leader]) for digest, leader in zip(digests, leaders, strict=True)}


def _half(digest: str) -> Half:
    return "explore" if hashlib.sha256(_SALT + digest.encode()).digest()[0] % 2 == 0 else "test"


def _perceptual_hash(grey: npt.NDArray[np.float64]) -> int:
    """Signs of the low frequencies of the cosine transform; 0 for a flat picture, whose signs would be noise."""
    if grey.std() < _FLAT:
        return 0
    steps = np.arange(_SIDE)
    basis = np.cos(np.pi * np.outer(np.arange(1, _FREQUENCIES + 1), 2 * steps + 1) / (2 * _SIDE))
    low = (basis @ grey @ basis.T).ravel()
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes())


def _near_duplicates(prints: list[Fingerprint]) -> Iterator[tuple[int, int]]:
    """Pairs of positions. Every picture meets every other, a block of rows at a time: 10,000 take about a second."""
    first: dict[Fingerprint, int] = {}
    for position, mark in enumerate(prints):
        yield first.setdefault(mark, position), position
    distinct = list(first)
    positions = list(first.values())
    hashes = np.array([mark.hash for mark in distinct], np.uint64)
    mirrored = np.array([mark.mirrored for mark in distinct], np.uint64)
    thumbnails = np.frombuffer(b"".join(mark.thumbnail for mark in distinct), np.uint8)
    thumbnails = thumbnails.reshape(-1, _THUMBNAIL, _THUMBNAIL, 3).astype(np.int16)
    limits = np.where(hashes == 0, FLAT_COLOUR_DISTANCE, COLOUR_DISTANCE)
    for start in range(0, len(distinct), _BLOCK):
        rows = hashes[start : start + _BLOCK]
        for others, theirs in ((hashes, thumbnails), (mirrored, thumbnails[:, :, ::-1])):
            left, right = np.nonzero(np.bitwise_count(rows[:, None] ^ others[None, :]) <= HASH_DISTANCE)
            left += start
            for at in range(0, len(left), _PAIRS):
                a, b = left[at : at + _PAIRS], right[at : at + _PAIRS]
                difference = np.abs(thumbnails[a] - theirs[b]).mean(axis=(1, 2, 3))
                close = difference <= np.minimum(limits[a], limits[b])
                yield from ((positions[i], positions[j]) for i, j in zip(a[close], b[close], strict=True))


def _group(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Union-find; the leader of a group is its smallest position, which is its smallest digest."""
    parent = list(range(count))

    def leader(position: int) -> int:
        while parent[position] != position:
            parent[position] = parent[parent[position]]
            position = parent[position]
        return position

    for a, b in pairs:
        first, second = sorted((leader(a), leader(b)))
        parent[second] = first
    return [leader(position) for position in range(count)]
