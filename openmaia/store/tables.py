"""Parquet tables as plain rows. pyarrow is only partly typed, and this is where that ends."""

import io
import json
import zlib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from openmaia.errors import StoreError
from openmaia.store.files import Files

Row = dict[str, Any]
HEADER = b"openmaia"
"""The key under which a file's own description stands in its metadata, as JSON."""

_CRC = 4
"""Bytes of a CRC-32."""

DAMAGED = (OSError, pa.ArrowException, ValueError)
"""What reading a damaged file raises: text that is no UTF-8 is a ValueError."""


def dump(rows: Sequence[Row], schema: pa.Schema | None = None, header: Row | None = None, group: int = 1024) -> bytes:
    """A few rows. group: rows per row group, the least that a reader has to touch."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    # Arrow's own buffer, not one of Python's: each of the hundred little writes into that takes the interpreter's lock.
    buffer = pa.BufferOutputStream()
    # Every investigation writes such files turn by turn: dictionaries and zstd cost a multiple of the rest, column by column.
    with _writer(buffer, table.schema, header, compression="lz4", use_dictionary=False) as writer:
        writer.write_table(table, group)
    return buffer.getvalue().to_pybytes()


def pack(rows: Sequence[Row], schema: pa.Schema, header: Row) -> bytes:
    """A few rows that will soon be read or forgotten: an Arrow stream behind its CRC-32, written in a tenth of Parquet's time."""
    buffer = pa.BufferOutputStream()
    table = pa.Table.from_pylist(list(rows), schema=schema).replace_schema_metadata({HEADER: json.dumps(header)})
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    data = buffer.getvalue().to_pybytes()
    return zlib.crc32(data).to_bytes(_CRC) + data


def unpack(data: bytes, name: str = "a file") -> tuple[list[Row], Row]:
    """(rows, header). Raises StoreError for what `pack` did not write, or not so."""
    if int.from_bytes(data[:_CRC]) != zlib.crc32(data[_CRC:]):
        raise StoreError(f"{name} is damaged: its checksum is another")
    try:
        table: Any = pa.ipc.open_stream(data[_CRC:]).read_all()
        return table.to_pylist(), _header(table.schema.metadata, name)
    except DAMAGED as error:
        raise StoreError(f"{name} is a damaged Arrow stream: {error}") from error


def stream(into: Any, rows: Iterable[Row], schema: pa.Schema, header: Row, group: int = 1024) -> None:
    """Writes rows as they come, a row group at a time."""
    left = iter(rows)
    with _writer(into, schema, header, compression="zstd") as writer:
        while batch := list(islice(left, group)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def write(into: Any, table: pa.Table, header: Row, group: int) -> None:
    with _writer(into, table.schema, header, compression="zstd") as writer:
        writer.write_table(table, group)


@contextmanager
def _writer(into: Any, schema: pa.Schema, header: Row | None, **options: Any) -> Generator[Any]:
    # Arrow's own schema, which our types do not need, would be kept beside Parquet's and hold the header a second time.
    with pq.ParquetWriter(into, schema, write_page_checksum=True, store_schema=False, **options) as writer:
        yield writer
        if header is not None:
            writer.add_key_value_metadata({HEADER.decode(): json.dumps(header, ensure_ascii=False)})


def load(data: bytes, name: str = "a file", columns: Sequence[str] | None = None) -> tuple[list[Row], Row]:
    """(rows, header). columns: these alone. Raises StoreError for what is no Parquet file of ours; name: for its message."""
    try:
        table: pa.Table = pq.read_table(  # pyright: ignore[reportUnknownMemberType]
            io.BytesIO(data), page_checksum_verification=True, columns=None if columns is None else list(columns)
        )
        return table.to_pylist(), _header(table.schema.metadata, name)
    except DAMAGED as error:
        raise StoreError(f"{name} is a damaged Parquet file: {error}") from error


def header(files: Files, name: str) -> Row:
    """The header alone, from the file's footer."""
    try:
        with files.open(name) as stream:
            schema = pq.read_schema(stream)  # pyright: ignore[reportUnknownMemberType]
    except DAMAGED as error:
        raise StoreError(
            f"{files.path(name)} is not a Parquet file of OpenMAIA: {error}; remove it, and the same command makes it again"
        ) from error
    return _header(schema.metadata, files.path(name))


def select(files: Files, name: str, column: str, value: int) -> tuple[list[Row], Row]:
    """(rows whose column holds the value, the header); only row groups that may hold them are read."""
    table = matching(files, name, column, value)
    return table.to_pylist(), _header(table.schema.metadata, files.path(name))


def matching(files: Files, name: str, column: str, value: int) -> pa.Table:
    try:
        with files.open(name) as stream:
            file: Any = pq.ParquetFile(stream, page_checksum_verification=True)
            at: int = file.schema_arrow.get_field_index(column)
            groups = [g for g in range(file.num_row_groups) if _may_hold(file.metadata.row_group(g).column(at), value)]
            table: Any = file.read_row_groups(groups)
            return table.filter(pa.array(np.asarray(table.column(at)) == value)).replace_schema_metadata(
                file.schema_arrow.metadata
            )
    except DAMAGED as error:
        raise StoreError(f"{files.path(name)} cannot be read: {error}") from error


def _may_hold(column: Any, value: int) -> bool:
    statistics = column.statistics
    return statistics is None or not statistics.has_min_max or statistics.min <= value <= statistics.max


def _header(metadata: dict[bytes, bytes] | None, name: str) -> Row:
    if not metadata or HEADER not in metadata:
        raise StoreError(f"{name} was not written by this OpenMAIA; remove it to have it made again")
    try:
        return cast(Row, json.loads(metadata[HEADER]))
    except ValueError as error:
        raise StoreError(f"{name} has a damaged header: {error}") from error
