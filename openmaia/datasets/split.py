"""Divides images into the explore and the test split.

The split of an image depends on its content only, not on names or order. Near-duplicates (resized, re-encoded or
mirrored copies) belong to the same split, because a test on a copy of an explored image would prove nothing. Crops,
rotations and recoloured copies are not recognised as near-duplicates.

The split of a group of near-duplicates is derived from a hash of its smallest digest. A new image therefore changes the
split of other images only if it has the smallest digest of its group, if it connects two groups, or by these rules:

- A group with more than _LARGEST_SHARE of the images is a chain, such as the slices of a volume or the frames of a film:
  each image resembles the next one, and the first does not resemble the last. It is cut into blocks. Images between two
  blocks are left out, so that no image resembles one of the other split.
- If both splits cannot have _SMALLEST_SHARE of the images otherwise, groups move to the smaller one.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_FLAT_COLOUR_DISTANCE = 1.5
"""The same for flat images. They all have the perceptual hash 0, so that only their colours differ. A larger distance would
join a series of similar shades into one group."""

_LARGEST_SHARE = 0.25
"""Share of the images above which a group of near-duplicates is divided."""

_SMALLEST_SHARE = 0.25
"""Share of the images below which groups are moved to a split."""

_LEVELS = 6
"""Number of levels of a chain for each block. The levels are images at equal distance from an end of the chain; at most
one of them is left out for each block."""

_STRICTER = 0.5
"""Factor of the largest distances, for a group that cannot be divided: images that are all alike, such as X-rays, of which
only closer copies have to stay together."""

_SALT = b"openmaia split 7036\n"
"""Salt of the hash that assigns splits. Of 30,000 candidates, it divides the kinds of objects in the packaged cut-outs
most evenly. It was chosen before any experiment. Another salt would change all splits."""

_FLAT = 2.0
"""Standard deviation of grey values below which an image counts as flat."""

_SPLITS: tuple[Split, Split] = ("explore", "test")
_SIDE, _FREQUENCIES, _THUMBNAIL = 32, 8, 8
_BLOCK, _PAIRS = 256, 65_536

Members = npt.NDArray[np.intp]
"""Positions of fingerprints, shape (images,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """That by which near-duplicates are recognised."""

    hash: int
    """64 bits."""
    mirrored: int
    """That of the mirrored image."""
    thumbnail: bytes
    """8 x 8 pixels, RGB."""


def make_fingerprint(image: Image.Image) -> Fingerprint:
    """Computes the fingerprint of an image. Transparent areas become white."""
    small = flatten(image).resize((_SIDE, _SIDE), Image.Resampling.BOX, reducing_gap=2.0)
    grey = np.asarray(small.convert("L"), dtype=np.float64)
    return Fingerprint(
        hash=_perceptual_hash(grey),
        mirrored=_perceptual_hash(grey[:, ::-1]),
        thumbnail=small.resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX).tobytes(),
    )


def assign_splits(fingerprints: Mapping[str, Fingerprint]) -> dict[str, Split]:
    """Returns the split of each image by digest. Images that are left out between two blocks of a chain are missing."""
    by_print: dict[Fingerprint, list[str]] = {}
    for digest in sorted(fingerprints):
        by_print.setdefault(fingerprints[digest], []).append(digest)
    digests: list[list[str]] = list(by_print.values())
    prints = _Prints(list(by_print))
    sizes = np.array([len(each) for each in digests])
    groups: list[tuple[list[str], Split]] = []
    for group in _groups(prints, np.arange(len(digests)), 1.0):
        is_large = len(group) > 1 and sizes[group].sum() > _LARGEST_SHARE * len(fingerprints)
        blocks = _blocks(prints, group) if is_large else []
        parts: Iterable[Members] = blocks or (_groups(prints, group, _STRICTER) if is_large else [group])
        first = _SPLITS.index(_split_of(digests[int(group.min())][0]))
        for number, part in enumerate(parts):
            members = [digest for place in part for digest in digests[int(place)]]
            groups.append((members, _SPLITS[(first + number) % 2] if blocks else _split_of(min(members))))
    return {digest: split for members, split in _balanced(groups) for digest in members}


def _blocks(prints: "_Prints", group: Members) -> list[Members]:
    """Cuts a chain into blocks of images that do not resemble those of other blocks, in the order of the chain.

    Empty if the group is no chain, so that most images would be left out.
    """
    levels = prints.levels(int(group[0]), group, 1.0)
    levels = prints.levels(int(levels[-1].min()), group, 1.0)
    count = max(2, min(len(levels) // _LEVELS, len(group)))
    cuts = [round(number * len(levels) / count) for number in range(1, count)]
    blocks: list[list[Members]] = [[]]
    for number, level in enumerate(levels):
        if number not in cuts:
            blocks[-1].append(level)
            continue
        # Levels resemble the two beside them only. The images that the next level does not resemble need no gap.
        following = levels[number + 1] if number + 1 < len(levels) else level[:0]
        blocks[-1].append(level[~prints.resemble(level, following, 1.0)])
        blocks.append([])
    found = [np.concatenate(block) for block in blocks if block]
    kept = [sum(map(len, found[half::2])) for half in (0, 1)]
    return found if min(kept) >= len(group) * _SMALLEST_SHARE else []


def _balanced(groups: list[tuple[list[str], Split]]) -> list[tuple[list[str], Split]]:
    """Moves groups to the smaller split until it has _SMALLEST_SHARE of the images, as far as that is possible."""
    count = {split: sum(len(members) for members, own in groups if own == split) for split in _SPLITS}
    balanced: list[tuple[list[str], Split]] = []
    for members, split in sorted(groups, key=lambda group: _hash(min(group[0]))):
        small, large = sorted(_SPLITS, key=lambda each: count[each])
        is_moved = (
            split == large
            and count[small] < _SMALLEST_SHARE * sum(count.values())
            and count[large] - len(members) > count[small]
        )
        if is_moved:
            count[small] += len(members)
            count[large] -= len(members)
        balanced.append((members, small if is_moved else split))
    return balanced


def _hash(digest: str) -> bytes:
    return hashlib.sha256(_SALT + digest.encode()).digest()


def _split_of(digest: str) -> Split:
    return _SPLITS[_hash(digest)[0] % 2]


def _perceptual_hash(grey: npt.NDArray[np.float64]) -> int:
    """Returns a 64-bit perceptual hash of a grey image.

    Each bit says whether one coefficient of the cosine transform exceeds the median of all 64 coefficients with the
    frequencies 1 to 8 in both directions.
    """
    if grey.std() < _FLAT:
        return 0  # its bits would be noise
    steps = np.arange(_SIDE)
    basis = np.cos(np.pi * np.outer(np.arange(1, _FREQUENCIES + 1), 2 * steps + 1) / (2 * _SIDE))
    low = (basis @ grey @ basis.T).ravel()
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes())


class _Prints:
    """Different fingerprints, given by their positions."""

    def __init__(self, prints: Sequence[Fingerprint]):
        self._hashes = np.array([mark.hash for mark in prints], np.uint64)
        self._mirrored = np.array([mark.mirrored for mark in prints], np.uint64)
        thumbnails = np.frombuffer(b"".join(mark.thumbnail for mark in prints), np.uint8)
        self._thumbnails = thumbnails.reshape(-1, _THUMBNAIL, _THUMBNAIL, 3).astype(np.int16)
        self._limits = np.where(self._hashes == 0, _FLAT_COLOUR_DISTANCE, COLOUR_DISTANCE)

    def resemble(self, places: Members, others: Members, factor: float) -> npt.NDArray[np.bool_]:
        """Returns for each of the places whether it is a near-duplicate of one of the others, with distances times `factor`."""
        found = np.zeros(len(places), np.bool_)
        h, m = self._hashes, self._mirrored
        for start in range(0, len(others), _BLOCK):
            block = others[start : start + _BLOCK]
            for ours, theirs, step in ((h, h, 1), (h, m, -1), (m, h, -1)):
                left = np.flatnonzero(~found)
                distances = np.bitwise_count(ours[places[left], None] ^ theirs[None, block])
                at, other = np.nonzero(distances <= HASH_DISTANCE * factor)
                for offset in range(0, len(at), _PAIRS):
                    near = left[at[offset : offset + _PAIRS]]
                    a, b = places[near], block[other[offset : offset + _PAIRS]]
                    difference = np.abs(self._thumbnails[a] - self._thumbnails[b][:, :, ::step]).mean(axis=(1, 2, 3))
                    found[near[difference <= np.minimum(self._limits[a], self._limits[b]) * factor]] = True
        return found

    def levels(self, start: int, among: Members, factor: float) -> list[Members]:
        """Returns the group of `start` by the distance from it: near-duplicates, their near-duplicates, and so on."""
        levels, left = [np.array([start])], among[among != start]
        while len(levels[-1]):
            reached = self.resemble(left, levels[-1], factor)
            levels.append(left[reached])
            left = left[~reached]
        return levels[:-1]


def _groups(prints: _Prints, among: Members, factor: float) -> Iterator[Members]:
    """Yields groups of near-duplicates, closed under resemblance."""
    is_left = np.zeros(int(among.max(initial=-1)) + 1, np.bool_)
    is_left[among] = True
    for start in among:
        if is_left[start]:
            group = np.concatenate(prints.levels(int(start), np.flatnonzero(is_left), factor))
            is_left[group] = False
            yield group
