"""Images that agents drew, with the activations of all units of the layer, kept beside a run.

    shared/<target>/<layer>/<digest>.parquet

A file holds what one investigation adds to those before it, and is named by the digest of its content. So no worker
overwrites the file of another, a repetition writes the same one, and an image that two workers add at once is read once.
"""

import hashlib
import threading
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache, cached

from openmaia.core.errors import StoreError
from openmaia.core.images import EncodedImage
from openmaia.core.services import SharedImage
from openmaia.core.units import Unit
from openmaia.runs import tables
from openmaia.runs.files import Files, naming, safe

_VERSION = 1

_TEXT = pa.string()
_COLUMNS = {
    "digest": _TEXT,
    "prompt": _TEXT,
    "activations": pa.binary(),
    "data": pa.binary(),
    "sources": pa.list_(pa.field("element", _TEXT, nullable=False)),
    "recipe": _TEXT,
}
SHARED_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])
_WITHOUT_IMAGES = ("digest", "prompt", "activations")

ActivationMatrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SharedStore:
    """The shared images of a run. It implements `openmaia.core.services.Shared`."""

    files: Files
    """Where the records of the run are."""
    _ranked: dict[tuple[str, Unit], list[SharedImage]] = field(
        default_factory=dict[tuple[str, Unit], list[SharedImage]], compare=False
    )
    # What was read before, by file: an agent looks several times.

    def digests(self, unit: Unit) -> set[str]:
        """Returns the digests of the images of a unit's layer, without those of damaged files: what is kept twice is read
        once. Raises StoreError if the folder cannot be read."""
        found = set[str]()
        for name in _names(self.files, unit.target, unit.layer):
            with suppress(StoreError):
                found |= _digests(self.files, name)
        return found

    def add(self, unit: Unit, images: Sequence[tuple[str, EncodedImage]], activations: ActivationMatrix) -> None:
        """Keeps images of a unit's layer, each with its prompt. `activations` has the shape (images, units)."""
        rows = [
            {"digest": image.digest, "prompt": prompt, "activations": values.tobytes()}
            | {"data": image.packed().data, "sources": list(image.sources), "recipe": image.recipe}
            for (prompt, image), values in zip(images, activations.astype(np.float32), strict=True)
        ]
        data = tables.dump(rows, SHARED_SCHEMA, {"version": _VERSION})
        name = hashlib.sha256(data).hexdigest()[:32]
        self.files.write(f"{_folder(unit.target, unit.layer)}/{name}.parquet", data)

    def rank(self, unit: Unit) -> list[SharedImage]:
        """See `openmaia.core.services.Shared`."""
        found: dict[str, SharedImage] = {}
        for name in _names(self.files, unit.target, unit.layer):
            if (name, unit) not in self._ranked:
                self._ranked[name, unit] = [*_of_unit(self.files, name, unit.index)]
            found |= {each.digest: each for each in self._ranked[name, unit]}
        return sorted(found.values(), key=lambda each: (-each.activation, each.digest))

    def images(self, unit: Unit, digests: Sequence[str]) -> list[EncodedImage]:
        """See `openmaia.core.services.Shared`."""
        found: dict[str, EncodedImage] = {}
        for name in _names(self.files, unit.target, unit.layer):
            missing = {*digests} - found.keys()
            if missing & _digests(self.files, name):
                found |= {each.digest: each for each in _images(self.files, name, missing)}
        if {*digests} - found.keys():
            folder = self.files.path(_folder(unit.target, unit.layer))
            raise StoreError(f"{folder}: shared images were removed meanwhile; resume the run")
        return [found[digest] for digest in digests]

    def matrices(self, target: str, layer: str, most: int = 20_000) -> Iterator[ActivationMatrix]:
        """Yields the activations of each file, shape (images, units), NaN where they are not finite. Without images of
        earlier files, without what is damaged, and none after `most` images."""
        seen, names = set[str](), list[str]()
        with suppress(StoreError):
            names = _names(self.files, target, layer)
        for name in names:
            if len(seen) >= most:
                return
            with suppress(StoreError):
                rows = _rows(self.files, name)
                values = _matrix(self.files, name, rows)
                new = [place for place, row in enumerate(rows) if row["digest"] not in seen]
                seen |= {row["digest"] for row in rows}
                if new:
                    yield np.where(np.isfinite(values[new]), values[new], np.float32(np.nan))


def _folder(target: str, layer: str) -> str:
    return f"shared/{safe(target)}/{safe(layer)}"


def _names(files: Files, target: str, layer: str) -> list[str]:
    return [name for name in files.names(_folder(target, layer)) if name.endswith(".parquet")]


def _path(files: Files, name: str) -> str:
    return files.path(name)


@cached(LRUCache[str, frozenset[str]](100_000), key=_path, lock=threading.Lock())
def _digests(files: Files, name: str) -> frozenset[str]:
    # Each end of an investigation asks for all: a file never changes under its name.
    return frozenset(row["digest"] for row in _rows(files, name, ("digest",)))


def _rows(files: Files, name: str, columns: Sequence[str] | None = _WITHOUT_IMAGES) -> list[dict[str, Any]]:
    with _removable(files, name):
        with _opened(files, name) as stream:
            rows, header = tables.load(stream, "shared images", columns, SHARED_SCHEMA)
        if header.get("version") != _VERSION:
            raise StoreError(f"shared images of version {str(header.get('version'))[:40]}, not {_VERSION}")
        return rows


def _matrix(files: Files, name: str, rows: Sequence[dict[str, Any]]) -> ActivationMatrix:
    with _removable(files, name):
        sizes = {len(row["activations"]) for row in rows}
        if len(sizes) != 1 or min(sizes) % 4 or not min(sizes):
            raise StoreError("shared images that differ in their number of activations")
        return np.stack([np.frombuffer(row["activations"], np.float32) for row in rows])


def _of_unit(files: Files, name: str, index: int) -> Iterator[SharedImage]:
    rows = _rows(files, name)
    values = _matrix(files, name, rows)
    with _removable(files, name):
        if index >= values.shape[1]:
            raise StoreError(f"shared images without an activation of unit {index}")
        for row, value in zip(rows, values[:, index].tolist(), strict=True):
            if not row["prompt"].isprintable():
                raise StoreError("shared images of which a prompt has a control character")
            if np.isfinite(value):
                # As `UnitActivation.value`.
                yield SharedImage(digest=row["digest"], prompt=row["prompt"], activation=float(f"{value:.5g}"))


def _images(files: Files, name: str, wanted: Collection[str]) -> Iterator[EncodedImage]:
    for row in _rows(files, name, ("digest", "data", "sources", "recipe")):
        if row["digest"] in wanted:
            image = EncodedImage(data=row["data"], sources=tuple(row["sources"]), recipe=row["recipe"])
            with _removable(files, name):
                if _digest(image) != row["digest"]:
                    raise StoreError("shared images of which one is not that of its digest")
            yield image


@contextmanager
def _opened(files: Files, name: str) -> Generator[pa.NativeFile]:
    try:
        stream = files.open(name)
    except OSError as error:
        raise StoreError(f"shared images that cannot be opened: {error}") from error
    with stream:
        yield stream


def _digest(image: EncodedImage) -> str:
    try:
        return image.digest
    except ValueError:
        return ""


@contextmanager
def _removable(files: Files, name: str) -> Generator[None]:
    try:
        with naming(files.path(name)):
            yield
    except StoreError as error:
        raise StoreError(f"{error.message}; remove the file, the run goes on without its images") from error
