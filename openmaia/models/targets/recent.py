"""The responses of layers to the images that were measured last, on the device of the network."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from cachetools import LRUCache

from openmaia.core.errors import ServiceError
from openmaia.core.images import EncodedImage, Pixels, ViewBox
from openmaia.models.targets.forward import input_batches
from openmaia.models.targets.preprocess import Preprocessing

_T = TypeVar("_T")

CACHE_BYTES = 384 * 2**20
"""Agents often measure the same images for many units."""

VIEW_BYTES = 64 * 2**20
"""Of what the network receives of images. Units are mostly changed on images that were measured before."""

_THREADS = min(os.cpu_count() or 1, 8)
"""Decoding releases the interpreter lock, but what else is done to an image does not: more threads are slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a network made of an image."""

    responses: Mapping[str, torch.Tensor]
    """By layer: (units, h, w), or (units,) without positions, on the device of the network."""
    box: ViewBox
    """The part of the image that the network saw."""

    @property
    def nbytes(self) -> int:
        return sum(response.nbytes for response in self.responses.values())


class RecentResponses:
    """Runs a network on images, and keeps what it made of the most recent ones. Not thread-safe."""

    def __init__(
        self,
        preprocess: Preprocessing,
        run: Callable[[torch.Tensor], Mapping[str, torch.Tensor]],
        device: torch.device,
        batch: int,
    ):
        """Keeps nothing yet.

        Args:
            run: Returns responses by layer, (images, units, …), to inputs of shape (images, channels, height, width), both
                on the device.
            batch: Largest number of images of equal size that share a pass.
        """
        self._preprocess, self._run, self._device, self._batch = preprocess, run, device, batch
        self._kept = LRUCache[str, Measured](CACHE_BYTES, getsizeof=lambda measured: measured.nbytes)
        self._views = LRUCache[str, tuple[Pixels, ViewBox]](VIEW_BYTES, getsizeof=lambda seen: seen[0].nbytes)

    @property
    def nbytes(self) -> int:
        """The bytes of all responses that are kept."""
        return int(self._kept.currsize)

    def read(self, images: Sequence[EncodedImage]) -> list[Measured]:
        """Returns what the network makes of each image. Those that are not kept pass through it, each once."""
        digests = self.each(lambda image: image.digest, images)
        found = {digest: self._kept.get(digest) for digest in digests}
        new = {digest: image for digest, image in zip(digests, images, strict=True) if found[digest] is None}
        found |= dict(zip(new, self._measure(list(new.values())), strict=True))
        for digest in new:
            if (measured := found[digest]) and measured.nbytes <= self._kept.maxsize:
                self._kept[digest] = measured
        return [measured for digest in digests if (measured := found[digest])]

    def _measure(self, images: Sequence[EncodedImage]) -> list[Measured]:
        seen = self.views(images)
        measured: dict[int, Measured] = {}
        for indices, batch in input_batches(self._preprocess, [view for view, _ in seen], self._device, self._batch):
            try:
                responses = self._run(batch)
            except ServiceError:
                # The request will be repeated, and what is kept may be the memory that it lacked.
                self._kept.clear()
                raise
            for row, i in enumerate(indices):
                # Copies, because a view would keep the whole batch in memory.
                own = {
                    layer: values[row].clone(memory_format=torch.contiguous_format)
                    for layer, values in responses.items()
                }
                measured[i] = Measured(responses=own, box=seen[i][1])
        return [measured[i] for i in range(len(images))]

    def views(self, images: Sequence[EncodedImage]) -> list[tuple[Pixels, ViewBox]]:
        """Returns what the network receives of each image, and the part of the image that this shows."""
        digests = self.each(lambda image: image.digest, images)
        found = {digest: self._views.get(digest) for digest in digests}
        new = {digest: image for digest, image in zip(digests, images, strict=True) if found[digest] is None}
        seen = self.each(lambda image: self._preprocess.view(image.pixels), list(new.values()))
        for digest, each in zip(new, seen, strict=True):
            found[digest] = each
            if each[0].nbytes <= self._views.maxsize:
                self._views[digest] = each
        return [each for digest in digests if (each := found[digest])]

    def each(self, function: Callable[[EncodedImage], _T], images: Sequence[EncodedImage]) -> list[_T]:
        """Calls a function with each image, in threads where several images share a pass."""
        if self._batch == 1 or len(images) == 1:
            return [function(image) for image in images]
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(function, images))
