"""Divides images into an explore split, on which hypotheses are formed, and a test split, on which they are tested.

The split of an image depends on its content only, not on names, order or unrelated images. Near-duplicates (resized,
re-encoded or mirrored copies) belong to the same split, because a test on a copy of an explored image would prove
nothing.

The split of a group of near-duplicates is derived from a hash of its smallest digest. A new image therefore changes the
split of other images only if it joins their group and has the smallest digest, or if it connects two groups. Crops,
rotations and recoloured copies are not recognised as near-duplicates.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.core.images import flatten
from openmaia.core.services import Split

HASH_DISTANCE = 12
"""Largest Hamming distance between the 64-bit perceptual hashes of near-duplicates."""

COLOUR_DISTANCE = 10.0
"""Largest mean difference, on a scale of 0 to 255, between the thumbnails of near-duplicates. It separates images of
equal shapes and different colours."""

FLAT_COLOUR_DISTANCE = 1.5
"""Like COLOUR_DISTANCE, for flat images, which have nearly one grey value. They all have the perceptual hash 0, so that
only their colours differ. A larger distance would join a series of similar shades into one group."""

_SALT = b"openmaia split 7036\n"
"""Salt of the hash that assigns splits. Of 30,000 candidates, it divides the kinds of objects in the packaged cut-outs
most evenly. It was chosen before any experiment. Another salt would change all splits."""

_FLAT = 2.0
"""Standard deviation of grey values below which an image counts as flat."""

_SIDE, _FREQUENCIES, _THUMBNAIL = 32, 8, 8
_BLOCK, _PAIRS = 256, 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A compact description of an image by which near-duplicates are recognised."""

    hash: int
    """Perceptual hash, 64 bits."""
    mirrored: int
    """Perceptual hash of the mirrored image."""
    thumbnail: bytes
    """The image at 8 x 8 pixels, RGB."""


def fingerprint(image: Image.Image) -> Fingerprint:
    """Computes the fingerprint of an image, by which near-duplicates are found. Transparent areas become white."""
    small = flatten(image).resize((_SIDE, _SIDE), Image.Resampling.BOX, reducing_gap=2.0)
    grey = np.asarray(small.convert("L"), dtype=np.float64)
    return Fingerprint(
        hash=_perceptual_hash(grey),
        mirrored=_perceptual_hash(grey[:, ::-1]),
        thumbnail=small.resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX).tobytes(),
    )


def assign_splits(fingerprints: Mapping[str, Fingerprint]) -> dict[str, Split]:
    """Assigns each image to a split: explore or test. Near-duplicates are assigned to the same split.

    Args:
        fingerprints: The fingerprint of each image, by digest.

    Returns:
        The split of each image, by digest.
    """
    digests = sorted(fingerprints)
    leaders = _group(len(digests), _near_duplicates([fingerprints[digest] for digest in digests]))
    return {digest: _split_of(digests[leader]) for digest, leader in zip(digests, leaders, strict=True)}


def _split_of(digest: str) -> Split:
    return "explore" if hashlib.sha256(_SALT + digest.encode()).digest()[0] % 2 == 0 else "test"


def _perceptual_hash(grey: npt.NDArray[np.float64]) -> int:
    """Returns a 64-bit perceptual hash of a grey image.

    Each bit says whether one coefficient of the cosine transform exceeds the median of all 64 coefficients with the
    frequencies 1 to 8 in both directions. A flat image gets the hash 0, because its bits would be noise.
    """
    if grey.std() < _FLAT:
        return 0
    steps = np.arange(_SIDE)
    basis = np.cos(np.pi * np.outer(np.arange(1, _FREQUENCIES + 1), 2 * steps + 1) / (2 * _SIDE))
    low = (basis @ grey @ basis.T).ravel()
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes())


def _near_duplicates(prints: list[Fingerprint]) -> Iterator[tuple[int, int]]:
    """Yields the positions of pairs of near-duplicates. All pairs are compared; 10,000 images take about a second."""
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
            for offset in range(0, len(left), _PAIRS):
                a, b = left[offset : offset + _PAIRS], right[offset : offset + _PAIRS]
                difference = np.abs(thumbnails[a] - theirs[b]).mean(axis=(1, 2, 3))
                close = difference <= np.minimum(limits[a], limits[b])
                yield from ((positions[i], positions[j]) for i, j in zip(a[close], b[close], strict=True))


def _group(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Joins pairs to groups (union-find) and returns for each position the smallest position of its group."""
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
