"""Reads and writes Parquet files with a JSON header. Wraps the parts of pyarrow that have no type annotations."""

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError
from openmaia.runs.files import Files

TableRow = dict[str, Any]

HEADER = b"openmaia"

_LARGEST = 8 * 2**30
"""Largest size in bytes of the unpacked pages of a file that is read as a whole, and its largest number of rows."""

READ_ERRORS = (OSError, pa.ArrowException, ValueError)
"""Exceptions that pyarrow raises for a damaged file. Text that is not UTF-8 raises ValueError."""


def dump(
    rows: Sequence[TableRow], schema: pa.Schema | None = None, header: TableRow | None = None, group: int = 1024
) -> bytes:
    """Returns the content of a Parquet file with a few rows, in row groups of `group` rows. Types are inferred without
    `schema`."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    # A Python buffer would take the interpreter's lock for each of about a hundred small writes.
    buffer = pa.BufferOutputStream()
    # Investigations write such files all the time. Dictionaries and zstd would cost a multiple of the rest.
    with _writer(buffer, table.schema, header, compression="lz4", use_dictionary=False) as writer:
        writer.write_table(table, group)
    return buffer.getvalue().to_pybytes()


def stream(into: Any, rows: Iterable[TableRow], schema: pa.Schema, header: TableRow, group: int = 1024) -> None:
    """Writes rows as they arrive to a Parquet file, in row groups of `group` rows."""
    remaining = iter(rows)
    with _writer(into, schema, header, compression="zstd") as writer:
        while batch := list(islice(remaining, group)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def write(into: Any, table: pa.Table, header: TableRow, group: int) -> None:
    """Writes a table to a Parquet file, in row groups of `group` rows."""
    with _writer(into, table.schema, header, compression="zstd") as writer:
        writer.write_table(table, group)


@contextmanager
def _writer(into: Any, schema: pa.Schema, header: TableRow | None, **options: Any) -> Generator[Any]:
    # Arrow's own schema is not stored: our types do not need it, and it would hold the header a second time.
    with pq.ParquetWriter(into, schema, write_page_checksum=True, store_schema=False, **options) as writer:
        yield writer
        if header is not None:
            writer.add_key_value_metadata({HEADER.decode(): json.dumps(header, ensure_ascii=False)})


def load(
    data: bytes | pa.NativeFile,
    name: str = "a file",
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
) -> tuple[list[TableRow], TableRow]:
    """Returns the rows and the header of a Parquet file, which is given as a whole or open. Of an open one, only `columns` are
    read.

    `name` is for messages, and `columns` are those to read (None: all). A file with other columns or types than those
    of `schema` is refused.

    Raises StoreError if the file is damaged or has no header of OpenMAIA.
    """
    try:
        # Threads of pyarrow that still run when the interpreter exits can abort it, and records are small.
        source = data if isinstance(data, pa.NativeFile) else pa.BufferReader(data)
        file: Any = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
        _check_size(file.metadata)
        if schema is not None:
            _check_schema(file.schema_arrow, _as_read(schema))
        table: pa.Table = file.read(columns=None if columns is None else list(columns), use_threads=False)
        return table.to_pylist(), _header(table.schema.metadata, name)
    except READ_ERRORS as error:
        raise StoreError(f"{name} is a damaged Parquet file: {error}") from error


def _check_size(metadata: Any) -> None:
    """Raises ValueError if the pages of a file would take more than _LARGEST in memory: compression can hide that."""
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if size > _LARGEST or metadata.num_rows > _LARGEST:
        raise ValueError(f"it unpacks to {size:,} bytes in {metadata.num_rows:,} rows, which is too much to be true")


def _check_schema(found: Any, expected: Any) -> None:
    """Raises ValueError that names the first column which is missing or unknown, or has another type."""
    for name in (*expected.names, *found.names):
        if name not in found.names:
            raise ValueError(f"it lacks the column {name!r}")
        if name not in expected.names or found.names.count(name) > 1:
            raise ValueError(f"it has a column {name!r}, which OpenMAIA does not write")
        if not found.field(name).equals(expected.field(name)):
            raise ValueError(f"its column {name!r} has another type than OpenMAIA writes")


@cache
def _as_read(schema: pa.Schema) -> pa.Schema:
    """Returns the schema that a file has which was written with `schema`: Parquet has names of its own for some parts."""
    file: Any = pq.ParquetFile(pa.BufferReader(dump([], schema)))
    return file.schema_arrow


def header(files: Files, name: str) -> TableRow:
    """Returns the header of a Parquet file, of which only the footer is read.

    Raises StoreError if the file is damaged or has no header of OpenMAIA.
    """
    from pyarrow.dataset import ParquetFileFormat  # It imports pandas, which takes most of a second.

    try:
        with files.open(name) as stream:
            # `pq.read_schema` also makes a map of all columns, which takes longer than the reading.
            schema = ParquetFileFormat().inspect(stream)  # pyright: ignore[reportArgumentType, reportUnknownMemberType]
    except READ_ERRORS as error:
        raise StoreError(
            f"{files.path(name)} is damaged, or not a Parquet file of OpenMAIA: {' '.join(str(error).split())}"
        ) from error
    return _header(schema.metadata, files.path(name))


def select(
    files: Files, name: str, column: str, value: int, schema: pa.Schema | None = None
) -> tuple[list[TableRow], TableRow]:
    """Returns the rows whose `column` equals `value`, and the header. Raises StoreError for an unreadable file."""
    table = matching(files, name, column, value, schema)
    return table.to_pylist(), _header(table.schema.metadata, files.path(name))


def matching(files: Files, name: str, column: str, value: int, schema: pa.Schema | None = None) -> pa.Table:
    """Returns a table of the rows whose `column` equals `value`. Raises StoreError if the file cannot be read.

    Row groups that cannot contain the value are not read.
    """
    try:
        with files.open(name) as stream:
            file: Any = pq.ParquetFile(stream, page_checksum_verification=True)
            _check_size(file.metadata)
            if schema is not None:
                _check_schema(file.schema_arrow, _as_read(schema))
            field: int = file.schema_arrow.get_field_index(column)
            groups = range(file.num_row_groups)
            table: Any = file.read_row_groups(
                [group for group in groups if _may_hold(file.metadata.row_group(group).column(field), value)],
                use_threads=False,
            )
            rows = table.filter(pa.array(np.asarray(table.column(field)) == value))
            return rows.replace_schema_metadata(file.schema_arrow.metadata)
    except READ_ERRORS as error:
        raise StoreError(f"{files.path(name)} cannot be read: {error}") from error


def _may_hold(column: Any, value: int) -> bool:
    statistics = column.statistics
    return statistics is None or not statistics.has_min_max or statistics.min <= value <= statistics.max


def _header(metadata: dict[bytes, bytes] | None, name: str) -> TableRow:
    if not metadata or HEADER not in metadata:
        raise StoreError(f"{name} was not written by this OpenMAIA")
    try:
        loaded: Any = parse_json(metadata[HEADER])
        if b"\\u" in metadata[HEADER]:  # JSON can name half of a character, which no file and no terminal can hold
            json.dumps(loaded, ensure_ascii=False).encode()
    except ValueError as error:
        raise StoreError(f"{name} has a damaged header: {error}") from error
    if not isinstance(loaded, dict):
        raise StoreError(f"{name} has a damaged header: it is no JSON object")
    return cast(TableRow, loaded)
