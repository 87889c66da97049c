"""Pictures by number, in an Arrow file: one that is mapped into memory reads no more than what is asked for."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from openmaia.errors import StoreError
from openmaia.images import Picture
from openmaia.store import tables
from openmaia.store.files import Files

SCHEMA = pa.schema([("data", pa.binary()), ("sources", pa.list_(pa.string()))])

BATCH = 64
"""Pictures that are read together from an object store, which cannot be mapped."""


def write(files: Files, name: str, pictures: Iterable[Picture]) -> int:
    """Pictures get the numbers 0, 1, 2, ... Gives how many there were."""
    count = 0
    with files.writing(name) as stream, pa.ipc.new_file(stream, SCHEMA) as opened:
        writer: Any = opened
        waiting = iter(pictures)
        while batch := list(islice(waiting, BATCH)):
            rows = [{"data": picture.data, "sources": list(picture.sources)} for picture in batch]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
            count += len(rows)
    return count


def join(files: Files, name: str, parts: Sequence[str]) -> list[int]:
    """One file of several; gives the number that the first picture of each part has in it."""
    starts: list[int] = []

    def each() -> Iterable[Picture]:
        count = 0
        for part in parts:
            starts.append(count)
            with files.mapped(part) as stream:
                reader: Any = pa.ipc.open_file(stream)
                for index in range(reader.num_record_batches):
                    for row in reader.get_batch(index).to_pylist():
                        count += 1
                        yield Picture(data=row["data"], sources=tuple(row["sources"]))

    write(files, name, each())
    return starts


def read(files: Files, name: str, numbers: Sequence[int]) -> dict[int, Picture]:
    """Raises StoreError where the file is damaged or has no such number."""
    found: dict[int, Picture] = {}
    try:
        with files.mapped(name) as stream:
            reader: Any = pa.ipc.open_file(stream)
            for number in numbers:
                batch: Any = reader.get_batch(number // BATCH)
                data, sources = batch.column(0)[number % BATCH], batch.column(1)[number % BATCH]
                found[number] = Picture(data=data.as_py(), sources=tuple(sources.as_py()))
    except (*tables.DAMAGED, IndexError) as error:
        raise StoreError(f"{files.path(name)} cannot be read: {error}") from error
    return found
