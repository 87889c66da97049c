"""What it would save if images travelled with their pixels, so that the target need not decode what the generator has just encoded.

An image goes the way of the pools: made by one actor, through Ray's object store and the process that asked, to another actor that
needs its pixels. Milliseconds per image by the clock, medians; bytes are those of one image on its way.
"""

import logging
import pickle
import statistics
import time
from collections.abc import Sequence
from typing import Any

import ray

from measure.benchmarks.image_formats import pictures
from openmaia.core.images import EncodedImage, Pixels

COUNT, REPEATS = 32, 20
"""Images of a call, and calls."""

Travelling = tuple[EncodedImage, Pixels | None]


class PixelSource:
    """In place of a generator: its images are known."""

    def __init__(self, with_pixels: bool, images: Sequence[Pixels]):
        encoded = [EncodedImage.of(each) for each in images]
        self._images = [(each, pixels if with_pixels else None) for each, pixels in zip(encoded, images, strict=True)]

    def generate(self) -> list[Travelling]:
        """Returns all images."""
        return self._images


class PixelReader:
    """In place of a target: it reads the pixels."""

    def look(self, images: list[Travelling]) -> int:
        """Returns a sum over some pixels of all images."""
        return sum(int((image.decoded() if pixels is None else pixels)[0, 0, 0]) for image, pixels in images)


def measure(smoke: bool) -> dict[str, Any]:
    """By size: with and without pixels."""
    count, repeats = (4, 2) if smoke else (COUNT, REPEATS)
    found: dict[str, Any] = {}
    ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    try:
        for side in (224, 512):
            images = [pixels for kind, pixels in pictures(count // 2, side) if kind in ("scene", "photograph")]
            for with_pixels in (False, True):
                took, size = _journeys(images, with_pixels, repeats)
                name = f"{side} px, {'pixels beside' if with_pixels else 'encoded alone'}"
                found |= {f"{name}, ms": took, f"{name}, kB": size}
    finally:
        ray.shutdown()
    return found


def _journeys(images: Sequence[Pixels], with_pixels: bool, repeats: int) -> tuple[float, float]:
    drawing: Any = ray.remote(PixelSource).remote(with_pixels, images)
    looking: Any = ray.remote(PixelReader).remote()
    expected = sum(int(each[0, 0, 0]) for each in images)
    took: list[float] = []
    made: list[Travelling] = []
    for _ in range(repeats):
        began = time.perf_counter()
        made = ray.get(drawing.generate.remote())
        assert ray.get(looking.look.remote(ray.put(made))) == expected
        took.append(1000 * (time.perf_counter() - began) / len(images))
    size = statistics.mean(len(pickle.dumps(each)) for each in made) / 1000
    for actor in (drawing, looking):
        ray.kill(actor)
    return round(statistics.median(took), 3), round(size, 1)
