"""Decodes all images of a collection to compute digests and fingerprints (by which near-duplicates are found).

Images that cannot be used are counted by reason.
"""

import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from openmaia.datasets.reading import SkipReason, UnusableImage, read
from openmaia.datasets.split import Fingerprint, fingerprint

_AHEAD = 2
"""Largest number of images per thread that wait to be decoded."""


class ImageSource(Protocol):
    """The location of one image, such as a file. It is a small object that can be compared and pickled."""

    @property
    def name(self) -> str:
        """Name of the image, for messages."""
        ...

    def read(self) -> bytes:
        """Returns the encoded image.

        Raises:
            UnusableImage: The image cannot be read, or it is rejected, for example because it is too large.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedImage:
    """The properties of an image from which its split (explore or test) is computed."""

    digest: str
    """SHA-256 of the image; see `reading.read`."""
    fingerprint: Fingerprint


def scan(sources: Iterable[ImageSource | SkipReason]) -> tuple[dict[int, ScannedImage], dict[str, int]]:
    """Decodes every image once, in parallel.

    Args:
        sources: The images, or reasons why they are skipped.

    Returns:
        The usable images by their position among the sources, and the number of skipped images by reason.
    """
    with warnings.catch_warnings():
        # Pillow warns of large images and odd metadata. The filter is set here because it applies to all threads.
        warnings.simplefilter("ignore")
        results = dict(enumerate(_results(sources)))
    skipped = Counter(result.value for result in results.values() if isinstance(result, SkipReason))
    images = {position: result for position, result in results.items() if isinstance(result, ScannedImage)}
    return images, dict(sorted(skipped.items()))


def describe(skipped: dict[str, int]) -> str:
    """Returns the numbers of skipped images by reason as text, such as "2 corrupt, 1 empty"."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))


def _results(sources: Iterable[ImageSource | SkipReason]) -> Iterator[ScannedImage | SkipReason]:
    """Yields the results in the order of the sources. Sources are consumed only as fast as they are decoded."""
    threads = min(16, os.cpu_count() or 1)
    waiting: deque[Future[ScannedImage | SkipReason]] = deque()
    with ThreadPoolExecutor(threads) as pool:  # decoding and hashing release the GIL
        for source in sources:
            waiting.append(pool.submit(_examine, source))
            if len(waiting) > _AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _examine(source: ImageSource | SkipReason) -> ScannedImage | SkipReason:
    if isinstance(source, SkipReason):
        return source
    try:
        image, digest = read(source.read(), source.name)
    except UnusableImage as error:
        return error.reason
    return ScannedImage(digest=digest, fingerprint=fingerprint(image))
