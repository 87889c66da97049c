"""Reads the images of a pass ahead of the network: in threads of this process, or in processes of their own."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import EncodedImage, Pixels, ViewBox
from openmaia.datasets.library import DatasetImage
from openmaia.exemplars.pictures import shrink

_THREADS = min(os.cpu_count() or 1, 8)
"""Decoding releases the interpreter lock, but resizing and the network's calls share it: more threads are slower."""

PROCESSES = min(os.cpu_count() or 1, 16)
"""Number of processes that read images for a GPU. 16 feed ResNet-152 on an H200 twice over."""

_AHEAD = 64
"""Largest number of images that threads read ahead of the network."""

CHUNK = 8
"""Number of images that a process hands over together. Each process has up to three such chunks in shared memory, of which
containers may have only 64 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedImage:
    """An image that is ready for the network."""

    number: int
    view: Pixels
    """What the network receives."""
    box: ViewBox
    """The part of the dataset's image that `view` shows."""
    recipe: str = ""
    """See `EncodedImage.recipe`."""
    kept: EncodedImage | None = None
    """The image encoded for the store. None in the first pass."""


class ImageLoader:
    """Reads images of a dataset, crops and resizes them for a network, and encodes them for the store on request.

    Args:
        items: The images by number.
        view: `passes.Readable.view`.
        processes: Number of processes that read. 0 for threads of this process, which start faster and suffice for a
            network on a CPU.
    """

    def __init__(
        self, items: Sequence[DatasetImage], view: Callable[[Pixels], tuple[Pixels, ViewBox]], processes: int = 0
    ):
        self._items, self._view, self._processes = items, view, processes

    def load(self, numbers: Sequence[int], *, encoded: bool = False) -> Iterator[LoadedImage]:
        """Yields the images with these numbers in this order.

        Args:
            numbers: Numbers of the images.
            encoded: Whether to encode the images for the store, too.

        Raises:
            UsageError: An image was changed or removed.
            ServiceError: A process failed, for example because memory ran out.
        """
        # PyTorch starts no processes for no images.
        uses_processes = self._processes and len(numbers)
        return self._by_processes(numbers, encoded) if uses_processes else self._by_threads(numbers, encoded)

    def read(self, number: int, *, encoded: bool) -> LoadedImage:
        """Returns the image with this number, like `load`."""
        item = self._items[number]
        try:
            image = item.load()
        except ValueError as error:
            raise UsageError(f"an image was changed while exemplars were computed ({error}); start again") from error
        pixels = shrink(image)
        view, box = self._view(pixels)
        recipe = item.recipe
        kept = EncodedImage.of(pixels, [item.digest], recipe) if encoded else None
        return LoadedImage(number=number, view=view, box=box, recipe=recipe, kept=kept)

    def _by_threads(self, numbers: Sequence[int], encoded: bool) -> Iterator[LoadedImage]:
        ahead: deque[Future[LoadedImage]] = deque()
        with ThreadPoolExecutor(_THREADS) as threads:
            left = iter(numbers)
            for _ in numbers:
                new = islice(left, _AHEAD - len(ahead))
                ahead.extend(threads.submit(self.read, number, encoded=encoded) for number in new)
                yield ahead.popleft().result()

    def _by_processes(self, numbers: Sequence[int], encoded: bool) -> Iterator[LoadedImage]:
        chunks = [numbers[first : first + CHUNK] for first in range(0, len(numbers), CHUNK)]
        # Forked, because the images and the transform of a user need not be picklable. No process touches the GPU.
        loader: DataLoader[_Chunk | UsageError] = DataLoader(
            _Chunks(self, chunks, encoded),
            batch_size=None,
            num_workers=min(self._processes, len(chunks)),
            multiprocessing_context="fork",
        )
        read = iter(loader)
        while True:
            try:
                chunk = next(read)
            except StopIteration:
                return
            except RuntimeError as error:
                raise ServiceError(f"a process that read images for exemplars failed: {error}") from error
            if isinstance(chunk, UsageError):
                raise chunk
            yield from chunk.images()


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some images on their way between processes, with all their pixels in one tensor of shared memory."""

    flat: torch.Tensor
    described: list[tuple[LoadedImage, tuple[int, ...]]]
    """The images without their pixels, and the shapes of their views."""

    @classmethod
    def of(cls, images: Sequence[LoadedImage]) -> "_Chunk":
        flat = torch.from_numpy(np.concatenate([image.view.ravel() for image in images]))
        nothing = np.zeros(0, dtype=np.uint8)
        return cls(flat, [(replace(image, view=nothing), image.view.shape) for image in images])

    def images(self) -> Iterator[LoadedImage]:
        # Copied, because images of rare sizes wait for others of their size, and shared memory is scarce.
        pixels, start = self.flat.numpy().copy(), 0
        for image, shape in self.described:
            end = start + int(np.prod(shape))
            yield replace(image, view=pixels[start:end].reshape(shape))
            start = end


@dataclass(frozen=True, slots=True)
class _Chunks(Dataset["_Chunk | UsageError"]):
    loader: ImageLoader
    chunks: Sequence[Sequence[int]]
    encoded: bool

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> _Chunk | UsageError:
        try:
            return _Chunk.of([self.loader.read(number, encoded=self.encoded) for number in self.chunks[index]])
        except UsageError as error:
            # Returned, because PyTorch would raise it again with a traceback as its message.
            return error
