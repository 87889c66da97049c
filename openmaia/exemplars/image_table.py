"""Stores numbered images in an Arrow file. Local files are memory-mapped, so that only the requested images are read."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from openmaia.core.errors import StoreError
from openmaia.core.images import EncodedImage
from openmaia.runs import tables
from openmaia.runs.files import Files

_SCHEMA = pa.schema([("data", pa.binary()), ("sources", pa.list_(pa.string())), ("recipe", pa.string())])

_BATCH = 64
"""Images per Arrow record batch. On an object store, whose files cannot be memory-mapped, whole batches are read."""


def write(files: Files, name: str, images: Iterable[EncodedImage]) -> int:
    """Writes images, numbered from 0 on, and returns how many there are."""
    count = 0
    with files.writing(name) as stream, pa.ipc.new_file(stream, _SCHEMA) as opened:
        writer: Any = opened
        remaining = iter(images)
        while batch := list(islice(remaining, _BATCH)):
            rows = [{"data": image.data, "sources": list(image.sources), "recipe": image.recipe} for image in batch]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
            count += len(rows)
    return count


def join(files: Files, name: str, parts: Sequence[str]) -> list[int]:
    """Concatenates files of images, and returns the number of each part's first image in the new file.

    Raises:
        StoreError: A part is damaged.
    """
    starts: list[int] = []
    count = 0

    def images() -> Iterator[EncodedImage]:
        nonlocal count
        for part in parts:
            starts.append(count)
            for image in _all(files, part):
                count += 1
                yield image

    write(files, name, images())
    return starts


def _all(files: Files, name: str) -> Iterator[EncodedImage]:
    try:
        with files.mapped(name) as stream:
            reader: Any = pa.ipc.open_file(stream)
            for index in range(reader.num_record_batches):
                yield from map(_image, reader.get_batch(index).to_pylist())
    except tables.READ_ERRORS as error:
        path = files.path(name)
        folder = path.rpartition("/")[0]
        raise StoreError(f"{path} is damaged: {error}; remove {folder} to start the passes anew") from error


def read(files: Files, name: str, numbers: Sequence[int]) -> dict[int, EncodedImage]:
    """Returns the images with the given numbers. Raises StoreError if the file is damaged or lacks one."""
    images: dict[int, EncodedImage] = {}
    try:
        with files.mapped(name) as stream:
            reader: Any = pa.ipc.open_file(stream)
            for number in numbers:
                (row,) = reader.get_batch(number // _BATCH).slice(number % _BATCH, 1).to_pylist()
                images[number] = _image(row)
    except (*tables.READ_ERRORS, LookupError) as error:
        raise StoreError(f"{files.path(name)} cannot be read: {error}") from error
    return images


def _image(row: dict[str, Any]) -> EncodedImage:
    return EncodedImage(data=row["data"], sources=tuple(row["sources"]), recipe=row["recipe"])
