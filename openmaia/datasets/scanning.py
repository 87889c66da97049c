"""Decodes all images of a collection to compute their digests and fingerprints."""

import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from openmaia.datasets import depth
from openmaia.datasets.depth import Samples
from openmaia.datasets.reading import UnusableImage, read
from openmaia.datasets.split import Fingerprint, make_fingerprint

_AHEAD = 2
"""Largest number of images per thread that wait to be decoded."""


class ImageSource(Protocol):
    """The location of one image, such as a file. It is a small object that can be compared and pickled."""

    @property
    def name(self) -> str:
        """Name for messages."""
        ...

    def read(self) -> bytes:
        """Returns the encoded image. Raises UnusableImage if it cannot be read, or is rejected, for example as too large."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedImage:
    """What the split of an image is computed from."""

    digest: str
    """See `reading.Decoded`."""
    fingerprint: Fingerprint
    samples: Samples | None
    """See `reading.Decoded`."""
    has_frames: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What was found in a collection of images."""

    images: dict[int, ScannedImage]
    """The usable images by their position among the sources."""
    skipped: dict[str, int]
    examples: dict[str, str]
    """For each reason the message about the first image that was skipped for it."""
    scales: tuple[Samples, ...]
    """Ranges of the samples of more than 8 bits; see `depth.find_scales`."""


def scan(sources: Sequence[ImageSource]) -> Scan:
    """Decodes every image once, in parallel. Images of more than 8 bits are decoded again once their range is known."""
    with warnings.catch_warnings():
        # Pillow warns of large images and odd metadata. The filter is set here because it applies to all threads.
        warnings.simplefilter("ignore")
        results = dict(enumerate(_results(sources, ())))
        deep = {
            position: result.samples
            for position, result in results.items()
            if isinstance(result, ScannedImage) and result.samples
        }
        scales = depth.find_scales(deep.values())
        results |= dict(zip(deep, _results([sources[position] for position in deep], scales), strict=True))
    images: dict[int, ScannedImage] = {}
    skipped, examples = Counter[str](), dict[str, str]()
    for position, result in results.items():
        if isinstance(result, UnusableImage):
            skipped[result.reason.value] += 1
            examples.setdefault(result.reason.value, str(result)[:300])
        else:
            images[position] = result
    return Scan(images=images, skipped=dict(sorted(skipped.items())), examples=examples, scales=scales)


def describe(skipped: dict[str, int]) -> str:
    """Returns the numbers of skipped images by reason as text, such as "2 corrupt, 1 empty"."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))


def _results(sources: Iterable[ImageSource], scales: tuple[Samples, ...]) -> Iterator[ScannedImage | UnusableImage]:
    """Yields the results in the order of the sources. Sources are consumed only as fast as they are decoded."""
    threads = min(16, os.cpu_count() or 1)
    waiting: deque[Future[ScannedImage | UnusableImage]] = deque()
    with ThreadPoolExecutor(threads) as pool:  # decoding and hashing release the GIL
        for source in sources:
            waiting.append(pool.submit(_examine, source, scales))
            if len(waiting) > _AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _examine(source: ImageSource, scales: tuple[Samples, ...]) -> ScannedImage | UnusableImage:
    try:
        decoded = read(source.read(), source.name, scales)
    except UnusableImage as error:
        return error.with_traceback(None)
    return ScannedImage(
        digest=decoded.digest,
        fingerprint=make_fingerprint(decoded.image),
        samples=decoded.samples,
        has_frames=decoded.has_frames,
    )
