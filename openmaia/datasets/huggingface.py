"""Reads the images of a Hugging Face dataset from the hub, from local files, or from any URL that fsspec supports.

The library `datasets` downloads the files, converts them to memory-mapped Arrow files in its own cache (see HF_HOME)
and returns the encoded image of each row. The module `reading` decodes the images and limits their size.
"""

import glob
import hashlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.datasets.folder import FileSource
from openmaia.datasets.reading import MAX_BYTES, SkipReason, UnusableImage, check_bytes

_SUFFIXES = {"imagefolder": "", "webdataset": ".tar", "parquet": ".parquet"}
"""Dataset builders for files that are not on the hub, with the suffix of the files that each reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceImages:
    """A collection of the images in one column of a Hugging Face dataset.

    The object holds only the settings and is hashable; each process opens the dataset when it reads the first image.
    """

    dataset: str
    """A name on the hub, a local dataset folder, or one of the loaders `imagefolder`, `webdataset` and `parquet`, which
    read the files of the field `data`."""
    data: str = ""
    """The files to read: a file, a folder, a pattern with *, or a URL of one of these. For a dataset on the hub, a path
    within it; empty for all of its files."""
    subset: str = ""
    """Name of a configuration of the dataset; empty for the default one."""
    revision: str = ""
    """Revision on the hub; empty for the latest one. If it is empty and `first_rows` is above 0, the rows of the first
    download are cached and used again, so that newer revisions are not noticed."""
    split: str = ""
    """Name of the split of the dataset. Empty if the dataset has only one."""
    column: str = ""
    """Name of the column with the images. Empty for the column `image`, or the only column of images."""
    first_rows: int = 0
    """Number of rows of the dataset to use. Above 0, the dataset is streamed, and only these rows are downloaded; 0 for
    all rows."""

    @property
    def root(self) -> str:
        """Name of the dataset, for messages: config keys with values, such as "pictures.dataset=uoft-cs/cifar10"."""
        keys = ("dataset", "data", "subset", "split")
        return " ".join(f"pictures.{key}={value}" for key in keys if (value := getattr(self, key)))

    @property
    def expected(self) -> str:
        """Says in words what the dataset must contain, for error messages."""
        return "a dataset with a column of images"

    def stamp(self) -> str:
        """Returns a digest that changes if the dataset changes.

        It is computed from the number of rows and from the paths, sizes and modification times of the cached Arrow
        files.

        Raises:
            UsageError: The dataset cannot be loaded.
        """
        table = _open(self).table
        files = [Path(file["filename"]) for file in table.cache_files]
        lines = [f"{path}\t{path.stat().st_size}\t{path.stat().st_mtime_ns}" for path in files]
        return hashlib.sha256("\n".join([str(len(table)), *lines]).encode()).hexdigest()

    def sources(self) -> Iterator["RowSource"]:
        """Returns an iterator over the images of all rows. Raises UsageError if the dataset cannot be loaded."""
        return (RowSource(self, row) for row in range(len(_open(self).table)))


@dataclass(frozen=True, slots=True)
class RowSource:
    """The image in one row of a Hugging Face dataset."""

    images: HuggingFaceImages
    row: int
    """Number of the row, from 0."""

    @property
    def name(self) -> str:
        """Name of the image in messages: the name of the dataset and the number of the row."""
        return f"{self.images.root} row {self.row}"

    def read(self) -> bytes:
        """Returns the encoded image, which is neither empty nor too large (see `reading.MAX_BYTES`).

        Raises:
            UnusableImage: The row cannot be read, or its image is empty or too large.
        """
        opened = _open(self.images)
        try:
            cell = opened.table[self.row][opened.column]
        except Exception as error:
            raise UnusableImage(f"{self.name} cannot be read: {error}", reason=SkipReason.UNREADABLE) from error
        return _content(cell, self.name, opened.has_paths)


class _Rows(NamedTuple):
    table: Any
    """A `datasets.Dataset` or, while streaming, a `datasets.IterableDataset`."""
    column: str
    has_paths: bool
    """Whether paths in rows are read as files. This is safe only for `imagefolder`; elsewhere a path may name any
    file."""


@lru_cache(maxsize=8)
def _open(images: HuggingFaceImages) -> _Rows:
    """Opens a dataset for reading by row. Raises UsageError if it cannot be loaded."""
    if not images.first_rows:
        return _load(images)
    datasets = _library()
    try:
        # The cache key is the hash of the arguments, so that a second call reads the rows from the cache.
        features = datasets.Features({"image": datasets.Image(decode=False)})
        arguments = {"images": images, "files": _local_files(images)}
        table = datasets.Dataset.from_generator(_stream, features=features, gen_kwargs=arguments)
    except datasets.exceptions.DatasetGenerationError as error:
        raise _unreadable(images, error) from error
    return _Rows(table, "image", has_paths=False)


def _local_files(images: HuggingFaceImages) -> str:
    """Returns a hash of the paths, sizes and times of the local files of a dataset, if it has any.

    Raises:
        UsageError: The files cannot be listed.
    """
    lines = hashlib.sha256()
    for place in [images.data] if images.dataset in _SUFFIXES else [images.dataset, images.data]:
        path = user_path(place).absolute()
        if not place or "://" in place:
            continue
        found = path.rglob("*") if path.is_dir() else map(Path, glob.iglob(str(path), recursive=True))
        try:
            for file in sorted(each for each in found if each.is_file()):
                status = file.stat()
                lines.update(f"{file}\t{status.st_size}\t{status.st_mtime_ns}\n".encode())
        except OSError as error:
            raise UsageError(f"{images.root} cannot be listed: {error}") from error
    return lines.hexdigest()


def _stream(images: HuggingFaceImages, files: str) -> Iterator[dict[str, Any]]:
    """Yields the first rows with their encoded images. An unusable image gets empty bytes and is skipped later.

    `files` (see `_local_files`) is a part of the cache key only.
    """
    rows = _load(images)
    first: Iterator[Any] = islice(rows.table, images.first_rows)
    for number, row in enumerate(first):
        try:
            data = _content(row[rows.column], f"{images.root} row {number}", rows.has_paths)
        except UnusableImage:
            data = b""
        yield {"image": {"bytes": data, "path": None}}


def _load(images: HuggingFaceImages) -> _Rows:
    """Loads or streams a dataset without decoding its images. Raises UsageError if it cannot be loaded."""
    datasets = _library()
    try:
        arguments = {"revision": images.revision or None, **_data(images)}
        split = images.split or _only_split(images, arguments)
        streaming = images.first_rows > 0
        table: Any = datasets.load_dataset(
            images.dataset, images.subset or None, split=split, streaming=streaming, **arguments
        )
        column = _image_column(table.features or {}, images)
        table = table.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    except UsageError:
        raise
    except Exception as error:
        # Files of any origin, the network and the hub fail in many ways. All of them concern this dataset.
        raise _unreadable(images, error) from error
    return _Rows(table, column, has_paths=table.info.builder_name == "imagefolder")


def _data(images: HuggingFaceImages) -> dict[str, str]:
    """Returns the arguments of `datasets.load_dataset` that name files."""
    suffix = _SUFFIXES.get(images.dataset)
    if not images.data:
        if suffix is not None:
            raise UsageError(f"pictures.dataset={images.dataset} needs pictures.data, a path or URL of the files")
        return {}
    data = images.data if "://" in images.data else str(user_path(images.data))
    if not Path(data).is_dir() and ("*" in data or PurePosixPath(data).suffix):
        return {"data_files": data}
    return {"data_dir": data} if suffix is None else {"data_files": f"{data.rstrip('/')}/**/*{suffix}"}


def _only_split(images: HuggingFaceImages, arguments: dict[str, Any]) -> str:
    names: list[str] = _library().get_dataset_split_names(images.dataset, images.subset or None, **arguments)
    if len(names) != 1:
        raise UsageError(f"{images.root} has the splits {', '.join(names)}; choose one with pictures.split")
    return names[0]


def _image_column(features: dict[str, Any], images: HuggingFaceImages) -> str:
    """Returns the configured column; without one, the column named `image` or else the only column of images.

    Raises:
        UsageError: There is no such column, or several are possible.
    """
    datasets = _library()
    candidates = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
    candidates += [name for name, kind in features.items() if _holds_bytes(kind)]
    if images.column in candidates:
        return images.column
    named = [name for name in candidates if name.lower() == "image"] or candidates
    if len(named) == 1 and not images.column:
        return named[0]
    chosen = f" named {images.column}" if images.column else ""
    problem = f"no column of images{chosen}" if chosen or not named else "several columns of images"
    columns = ", ".join(f"{name} ({getattr(kind, 'dtype', kind)})" for name, kind in features.items())
    raise UsageError(f"{images.root} has {problem}; choose one with pictures.column of {columns[:600] or 'none'}")


def _holds_bytes(kind: Any) -> bool:
    """Returns whether a column without the type Image may hold encoded images, as bytes or a struct with bytes."""
    inner = cast(dict[str, Any], kind).get("bytes") if isinstance(kind, dict) else kind
    return getattr(inner, "dtype", None) in ("binary", "large_binary")


def _content(cell: Any, name: str, has_paths: bool) -> bytes:
    """Returns the encoded image in a cell, one row of the image column.

    Args:
        cell: A dict with the keys bytes and path; None for a missing image.
        name: Name of the image, for messages.
        has_paths: Whether a path is read as a file if there are no bytes.

    Raises:
        UnusableImage: The image is missing, too large or unreadable.
    """
    cell = cell or {"bytes": None, "path": None}
    path: Any = cell["path"]
    if cell["bytes"] is None and path and has_paths:
        return _remote(path) if "://" in path else FileSource(Path(path)).read()
    data: bytes = cell["bytes"] or b""
    check_bytes(name, len(data))
    return data


def _remote(url: str) -> bytes:
    fsspec: Any = importlib.import_module("fsspec")
    try:
        with fsspec.open(url, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except Exception as error:
        raise UnusableImage(f"{url} cannot be read: {error}", reason=SkipReason.UNREADABLE) from error
    check_bytes(url, len(data))
    return data


def _library() -> Any:
    """Returns the module `datasets`, without types. It is imported on demand, because the import takes seconds."""
    return importlib.import_module("datasets")


def _unreadable(images: HuggingFaceImages, error: Exception) -> UsageError:
    cause = error.__cause__ or error
    if isinstance(cause, UsageError):
        return cause
    message = " ".join(str(cause).split())[:600] or type(cause).__name__
    remedy = f"; pip install {cause.name}" if isinstance(cause, ImportError) else ""
    return UsageError(
        f"{images.root} cannot be loaded: {message}{remedy}; expected a dataset of the Hugging Face hub, or imagefolder, "
        "webdataset or parquet with files in pictures.data"
    )
