"""Pictures in archives: the tar shards of WebDataset, and Parquet files with an image column, as Hugging Face has them.

They lie in a local folder or anywhere that pyarrow reaches (s3://, gs://, file://). Captions and labels beside the pictures
are not used. Nothing is unpacked: the listing notes where each picture lies, and a picture is read from there.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from openmaia.errors import UsageError
from openmaia.pictures import scanning, shards, tar
from openmaia.pictures.places import Cell, Member, cells, content, footer
from openmaia.pictures.reading import Skipped, Unusable, check_bytes
from openmaia.pictures.scanning import Loaded, Scan
from openmaia.pictures.shards import DAMAGED, Shard

ArchiveKind = Literal["webdataset", "parquet"]

_SUFFIXES: dict[ArchiveKind, str] = {"webdataset": ".tar", "parquet": ".parquet"}
MEMBERS = (".jpg", ".jpeg", ".png", ".webp")
"""Endings of the members of a tar archive that are pictures; all others are captions and labels."""

_READ_AHEAD = 4 << 20
"""Bytes of a tar archive that are fetched together: an object store answers each request only after a while."""


@dataclass(frozen=True)
class Archives:
    """root: as the user gave it, without what may be secret. shards: in the order of their paths."""

    kind: ArchiveKind
    root: str
    shards: tuple[Shard, ...]

    @classmethod
    def find(cls, kind: ArchiveKind, root: str) -> "Archives":
        """root: a file, a folder with all below it, or a pattern with * that stays within a folder; a local path or a
        URL. Raises UsageError where there is none."""
        given, root = root, shards.shown(root)
        try:
            found = shards.find(given, _SUFFIXES[kind])
        except DAMAGED as error:
            raise UsageError(f"pictures.folder={root} cannot be listed: {error}") from error
        if not found:
            raise UsageError(
                f"pictures.folder={root} names no {_SUFFIXES[kind]} file, as pictures.kind={kind} expects (uncompressed, "
                f"where it is tar); give a file, a folder, or a pattern such as shards/*{_SUFFIXES[kind]}"
            )
        return cls(kind, root, tuple(sorted(found, key=lambda shard: shard.path)))

    def kept(self, cache: Path) -> list[Path]:
        """Where the listing of the pictures may be kept: beside those of a local disk, else in the cache."""
        what = f"{self.root} {self.shards[0].name}".encode("utf-8", "surrogateescape")
        name = f"{self.kind}-{hashlib.sha256(what).hexdigest()[:12]}.json"
        beside = [Path(self.shards[0].path).parent / f".split-{name}"] if not self.shards[0].url else []
        return [*beside, cache / "splits" / name]

    def stamp(self) -> str:
        lines = (f"{shard.path}\t{shard.size}\t{shard.changed}" for shard in self.shards)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def scan(self) -> Scan:
        """Reads every archive once, from its beginning to its end. A damaged one is counted, and used as far as it can
        be read. Raises UsageError where no picture is left or a Parquet file has no image column."""
        each = _members if self.kind == "webdataset" else self._cells
        found = (picture for shard in self.shards for picture in each(shard))
        return scanning.scan(found, f"pictures.folder={self.root}", f"{_SUFFIXES[self.kind]} files with pictures")

    def pack(self, source: Any) -> list[Any]:
        number = self._numbers[source.shard]
        if self.kind == "webdataset":
            return [number, source.member, source.offset, source.size]
        return [number, source.column, source.group, source.row]

    def unpack(self, place: Any) -> Member | Cell:
        given: tuple[Any, ...] = tuple(place)
        number, name, first, second = given
        if not isinstance(name, str) or any(type(value) is not int or value < 0 for value in (number, first, second)):
            raise ValueError(f"{given} is no place in an archive")
        if self.kind == "webdataset":
            return Member(self.shards[int(number)], name, first, second)
        return Cell(self.shards[int(number)], name, first, second)

    @cached_property
    def _numbers(self) -> dict[Shard, int]:
        return {shard: number for number, shard in enumerate(self.shards)}

    def _cells(self, shard: Shard) -> Iterator[Loaded | Skipped]:
        try:
            groups = footer(shard).num_row_groups
            column = _image_column(footer(shard).schema.to_arrow_schema(), self.root)
        except DAMAGED:
            yield Skipped.DAMAGED_ARCHIVE
            return
        damaged = False
        for group in range(groups):
            try:
                yield from _group(shard, column, group)
            except DAMAGED:
                damaged = True
        if damaged:
            yield Skipped.DAMAGED_ARCHIVE


def _members(shard: Shard) -> Iterator[Loaded | Skipped]:
    try:
        with io.BufferedReader(shard.open(), _READ_AHEAD) as stream:
            for entry in tar.entries(stream, shard.size):
                if entry.name.lower().endswith(MEMBERS):
                    yield _member(shard, entry, stream)
    except (*DAMAGED, tar.Damaged):
        yield Skipped.DAMAGED_ARCHIVE


def _member(shard: Shard, entry: tar.Entry, stream: io.BufferedReader) -> Loaded | Skipped:
    source = Member(shard, _plain(entry.name), entry.offset, entry.size)
    if not entry.is_regular:
        return Skipped.NOT_A_PICTURE
    try:
        check_bytes(source.name, entry.size)
    except Unusable as error:
        return error.reason
    stream.seek(entry.offset)
    return Loaded(source, stream.read(entry.size))


def _plain(name: str) -> str:
    """As it may be shown to people: on one line, and not endless. Its end holds the suffix."""
    return "".join(letter if letter.isprintable() else "�" for letter in name[-200:])


def _group(shard: Shard, column: str, group: int) -> Iterator[Loaded | Skipped]:
    row = 0
    for values in cells(shard, column, group):
        for value in values:
            source = Cell(shard, column, group, row)
            row += 1
            try:
                data = content(value, source.name)
            except Unusable as error:
                yield error.reason
            else:
                yield Loaded(source, data)


def _image_column(schema: Any, root: str) -> str:
    """The path of the pictures' bytes. Of several columns of bytes the one that Hugging Face's description calls an image,
    or that has the name `image`. Raises UsageError."""
    types: dict[str, Any] = {field.name: field.type for field in schema}
    found = {name: path for name, kind in types.items() if (path := _bytes_path(name, kind))}
    told = [name for name in found if name in _told(schema.metadata)]
    named = [name for name in found if name.lower() == "image"]
    for chosen in (list(found), told, named):
        if len(chosen) == 1:
            return found[chosen[0]]
    what = "several columns that could be the image" if found else "no image column"
    columns = ", ".join(f"{name} ({kind})" for name, kind in types.items()) or "none"
    raise UsageError(
        f"pictures.folder={root} has {what}; expected one of type binary, or struct with bytes: binary, as Hugging Face "
        f"datasets write, named `image` where there are several; found columns: {columns[:600]}"
    )


def _bytes_path(name: str, kind: Any) -> str:
    """ "" for what holds no bytes."""
    if pa.types.is_struct(kind):
        fields: Any = kind
        inner: dict[str, Any] = {field.name: field.type for field in fields}
        return f"{name}.bytes" if "bytes" in inner and _is_bytes(inner["bytes"]) else ""
    return name if _is_bytes(kind) else ""


def _is_bytes(kind: Any) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _told(metadata: Any) -> Sequence[str]:
    """Columns that Hugging Face's description of the file calls images."""
    try:
        features: dict[str, Any] = json.loads(metadata[b"huggingface"])["info"]["features"]
        return [name for name, feature in features.items() if feature["_type"] == "Image"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
