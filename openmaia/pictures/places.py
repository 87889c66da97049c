"""Where the bytes of one picture lie: in a file of its own, in a tar archive, or in a cell of a Parquet file.

All of them are small values that can be compared and pickled; nothing stays open between two readings.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from openmaia.pictures.reading import MAX_BYTES, Skipped, Unusable, check_bytes, has_picture_suffix
from openmaia.pictures.shards import DAMAGED, Shard

ROWS_AT_ONCE = 8
"""Rows of a Parquet file that are decoded together: a row group as a whole may be larger than the memory."""


class Source(Protocol):
    @property
    def name(self) -> str:
        """For people."""
        ...

    def read(self) -> bytes:
        """Between 1 and MAX_BYTES of them. Raises Unusable."""
        ...


@dataclass(frozen=True, slots=True)
class File:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise Unusable(f"{self.name} is no regular file", reason=Skipped.NOT_A_PICTURE)
            check_bytes(self.name, 1 if status.st_size else 0)
            if not has_picture_suffix(self.name) and not self._begins_like_a_picture():
                raise Unusable(f"{self.name} is no picture", reason=Skipped.NOT_A_PICTURE)
            check_bytes(self.name, status.st_size)
            # Non-blocking, so that a file swapped for a pipe meanwhile cannot hold us.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                return file.read(MAX_BYTES)
        except OSError as error:
            raise Unusable(f"{self.name} cannot be read: {error}", reason=Skipped.UNREADABLE) from error

    def _begins_like_a_picture(self) -> bool:
        """Spares reading gigabytes of archives and weights that lie between the pictures."""
        with self.path.open("rb") as file:
            head = file.read(16)
        return head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")) or (
            head[:4] == b"RIFF" and head[8:12] == b"WEBP"
        )


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an uncompressed tar archive. member: its name there, which is never used as a path. offset, size: of
    its content, in bytes."""

    shard: Shard
    member: str
    offset: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.shard.name}: {self.member}"

    def read(self) -> bytes:
        check_bytes(self.name, self.size)
        try:
            with self.shard.open() as stream:
                data: bytes = stream.read_at(self.size, self.offset)
        except DAMAGED as error:
            raise Unusable(f"{self.name} cannot be read: {error}", reason=Skipped.UNREADABLE) from error
        if len(data) != self.size:
            raise Unusable(f"{self.name} ends after {len(data)} of {self.size} bytes")
        return data


@dataclass(frozen=True, slots=True)
class Cell:
    """column: as Parquet writes paths, such as image.bytes. row: within its row group.

    Parquet cannot be entered at a row: what a row group holds before it is read along, in small batches.
    """

    shard: Shard
    column: str
    group: int
    row: int

    @property
    def name(self) -> str:
        return f"{self.shard.name}: row {self.row} of row group {self.group}"

    def read(self) -> bytes:
        try:
            left = self.row
            for values in cells(self.shard, self.column, self.group):
                if left < len(values):
                    return content(values[left], self.name)
                left -= len(values)
        except DAMAGED as error:
            raise Unusable(f"{self.name} cannot be read: {error}", reason=Skipped.UNREADABLE) from error
        raise Unusable(f"{self.name} is not there")


def cells(shard: Shard, column: str, group: int) -> Iterator[Any]:
    """Of one row group, an array of a few after the other. Raises DAMAGED."""
    with shard.open() as stream:
        # A buffer instead of the whole column chunk: row groups of pictures reach gigabytes.
        file: Any = pq.ParquetFile(stream, metadata=footer(shard), buffer_size=1 << 20, pre_buffer=False)
        if group >= file.metadata.num_row_groups:
            return
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=[column], use_threads=False):
            values = batch.column(0)
            while pa.types.is_struct(values.type):
                values = values.field(0)
            yield values


def content(cell: Any, name: str) -> bytes:
    """Raises Unusable for an empty cell and for one that is too large, before it is copied."""
    buffer: pa.Buffer | None = cell.as_buffer()
    check_bytes(name, 0 if buffer is None else buffer.size)
    assert buffer is not None
    return buffer.to_pybytes()


@lru_cache(maxsize=64)
def footer(shard: Shard) -> Any:
    """Of a Parquet file. Read once: it may be megabytes, and pictures are asked for in any order. Raises DAMAGED."""
    with shard.open() as stream:
        return pq.read_metadata(stream)  # pyright: ignore[reportUnknownMemberType]
