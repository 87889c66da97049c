"""Reads the images of a Hugging Face dataset from the hub, from local files, or from any URL that fsspec supports.

The library `datasets` downloads the files and converts them to memory-mapped Arrow files in its own cache (see HF_HOME).
"""

import hashlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.secrets import redacted
from openmaia.datasets import image_folder, metadata, remote, shards
from openmaia.datasets.folder import SAVED, FileSource
from openmaia.datasets.reading import SkipReason, UnusableImage, check_bytes, has_image_suffix
from openmaia.datasets.remote import RemoteFile, is_url
from openmaia.datasets.scanning import ImageSource

_SUFFIXES = {"imagefolder": (), "webdataset": shards.ARCHIVES, "parquet": (".parquet", ".parq")}
"""Formats of files that are not on the hub, with the suffixes of the files in a folder that each reads."""


_TABLES = (*shards.ARCHIVES, ".parquet", ".arrow", ".zip", ".json", ".csv", ".md", ".py", ".jsonl", ".txt")
"""Suffixes of files that make a folder a dataset of another format than an image folder, or describe one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceImages:
    """The images in one column of a Hugging Face dataset.

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
    """Empty if the dataset has only one."""
    column: str = ""
    """Empty for the column `image`, or the only column of images."""
    first_rows: int = 0
    """Above 0, the dataset is streamed, and only so many rows are downloaded; 0 for all rows."""

    @property
    def root(self) -> str:
        """Config keys with values, such as "pictures.dataset=uoft-cs/cifar10"."""
        keys = ("dataset", "data", "subset", "split")
        named = " ".join(f"pictures.{key}={value}" for key in keys if (value := getattr(self, key)))
        return redacted(named)

    @property
    def expected(self) -> str:
        """See `ImageCollection.expected`."""
        return "a dataset with a column of images"

    def stamp(self) -> str:
        """Returns a digest of the number of rows and of the paths, sizes and modification times of the files.

        Raises:
            UsageError: The dataset cannot be loaded.
        """
        if _is_image_folder(self) and not self.first_rows:
            lines = _stamps(self, (getattr(each, "url", each.name) for each in _files(self)))
        else:
            table = _open(self).table
            files = [Path(file["filename"]) for file in table.cache_files]
            lines = [f"{path}\t{path.stat().st_size}\t{path.stat().st_mtime_ns}" for path in files]
            lines.insert(0, str(len(table)))
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def sources(self) -> Iterable[ImageSource]:
        """Returns the images of all rows. Raises UsageError if the dataset cannot be loaded."""
        if _is_image_folder(self) and not self.first_rows:
            return _files(self)
        return [RowSource(self, row) for row in range(len(_open(self).table))]


@dataclass(frozen=True, slots=True)
class RowSource:
    """The image in one row of a Hugging Face dataset."""

    images: HuggingFaceImages
    row: int

    @property
    def name(self) -> str:
        """Names of the dataset and of the row, for messages."""
        return f"{self.images.root} row {self.row}"

    def read(self) -> bytes:
        """Returns the encoded image, which is neither empty nor larger than `reading.MAX_BYTES`.

        Raises:
            UnusableImage: The row cannot be read, or its image is empty or too large.
        """
        opened = _open(self.images)
        try:
            row = opened.table[self.row]
        except Exception as error:
            raise UnusableImage(f"{self.name} cannot be read: {error}", reason=SkipReason.UNREADABLE) from error
        if reason := row.get(_SKIPPED):
            raise UnusableImage(f"{row[_NAME]}: {reason}", reason=SkipReason(reason))
        return _content(row[opened.column], self.name, opened.has_paths)


class _Rows(NamedTuple):
    table: Any
    """A `datasets.Dataset` or, while streaming, a `datasets.IterableDataset`."""
    column: str
    has_paths: bool
    """Whether paths in rows are read as files. This is safe only for `imagefolder`; elsewhere a path may name any
    file."""


_SKIPPED, _NAME = "openmaia_skipped", "openmaia_name"
"""Columns of a table that OpenMAIA made: why a row has no image, and the name of the row in its source."""


@lru_cache(maxsize=8)
def _open(images: HuggingFaceImages) -> _Rows:
    """Opens a dataset for reading by row. Raises UsageError if it cannot be loaded."""
    place = images.data if images.dataset in _SUFFIXES else images.dataset
    if not images.first_rows and (images.dataset != "webdataset" or _is_saved(place)):
        return _load(images)
    datasets = _library()
    try:
        # The cache key is the hash of the arguments, so that a second call reads the rows from the cache.
        text = datasets.Value("string")
        features = datasets.Features({"image": datasets.Image(decode=False), _SKIPPED: text, _NAME: text})
        arguments = {"images": images, "files": _local_files(images)}
        table = datasets.Dataset.from_generator(_rows, features=features, gen_kwargs=arguments)
    except datasets.exceptions.DatasetGenerationError as error:
        raise _unreadable(images, error) from error
    except UsageError as error:
        raise _unreadable(images, error) from error
    return _Rows(table, "image", has_paths=False)


def _is_image_folder(images: HuggingFaceImages) -> bool:
    """Returns whether the files of an image folder are read one by one. Those in archives are read by the library."""
    is_own = images.dataset not in _SUFFIXES
    if is_own and (images.data or is_url(images.dataset) or not user_path(images.dataset).is_dir()):
        return False  # on the hub
    place = images.dataset if is_own else images.data
    if images.dataset in ("webdataset", "parquet") or not place or _is_saved(place):
        return False
    names = [name.lower() for name in _found(images, place)]
    if not is_own:
        return not any(name.endswith((*shards.ARCHIVES, ".zip")) for name in names)
    others = (name for name in names if PurePosixPath(name).name not in metadata.METADATA_FILES)
    return any(map(has_image_suffix, names)) and not any(name.endswith(_TABLES) for name in others)


def _found(images: HuggingFaceImages, place: str) -> list[str]:
    try:
        return remote.find(place, _SUFFIXES.get(images.dataset, ()))
    except UsageError as error:
        raise UsageError(f"{images.root} {error.message}") from None


def _files(images: HuggingFaceImages) -> list[ImageSource]:
    """Returns the files of an image folder. Raises UsageError if there are none, or if a split has to be chosen."""
    try:
        return image_folder.list_files(images.data or images.dataset, images.split)
    except UsageError as error:
        raise UsageError(f"{images.root} {error.message}") from None


def _local_files(images: HuggingFaceImages) -> str:
    """Returns a hash of the paths, sizes and times of the files of a dataset that are not on the hub."""
    place = images.data if images.dataset in _SUFFIXES else images.dataset
    if not place or not (images.dataset in _SUFFIXES or is_url(place) or user_path(place).exists()):
        return ""
    names = _found(replace(images, dataset="imagefolder") if _is_saved(place) else images, place)
    lines = "\n".join(_stamps(images, names))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def _stamps(images: HuggingFaceImages, places: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for place in places:
        try:
            lines += remote.read_stamps([place])
        except OSError:
            lines.append(place)  # such as a link that leads nowhere, which counts as an image that cannot be read
    return lines


def _rows(images: HuggingFaceImages, files: str) -> Iterator[dict[str, Any]]:
    """Yields the rows with their encoded images, or a reason in the place of an image. `files` only belongs to the cache key."""
    for name, read in islice(_readers(images), images.first_rows or None):
        try:
            data, skipped = read(), ""
        except UnusableImage as error:
            data, skipped = b"", error.reason.value
        yield {"image": {"bytes": data, "path": None}, _SKIPPED: skipped, _NAME: name}


def _readers(images: HuggingFaceImages) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yields the name of each row, and a function that returns its image or raises UnusableImage."""
    if _is_image_folder(images):
        yield from ((source.name, source.read) for source in _files(images))
        return
    if images.dataset == "webdataset" and not _is_saved(images.data):
        for place in _found(images, images.data):
            for member in shards.read_images(place, images.column):
                yield f"{PurePosixPath(remote.shown(place)).name}/{member.name}", partial(_of_member, member)
        return
    rows = _load(images)
    for number, row in enumerate(cast(Iterable[dict[str, Any]], rows.table)):
        name = f"{images.root} row {number}"
        yield name, partial(_content, row[rows.column], name, rows.has_paths)


def _of_member(member: shards.Member) -> bytes:
    if member.skipped:
        raise UnusableImage(f"{member.name}: {member.skipped}", reason=member.skipped)
    return member.data


def _load(images: HuggingFaceImages) -> _Rows:
    """Loads or streams a dataset without decoding its images. Raises UsageError if it cannot be loaded."""
    datasets = _library()
    try:
        place = images.data if images.dataset in _SUFFIXES else images.dataset
        table: Any = _saved(images, place) if _is_saved(place) else _loaded(images)
        column = _image_column(table.features or {}, images)
        table = table.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    except UsageError:
        raise
    except Exception as error:
        # Files of any origin, the network and the hub fail in many ways. All of them concern this dataset.
        raise _unreadable(images, error) from error
    return _Rows(table, column, has_paths=table.info.builder_name == "imagefolder")


def _loaded(images: HuggingFaceImages) -> Any:
    arguments = {"revision": images.revision or None, **_data(images)}
    split = images.split or _only_split(images, arguments)
    streaming = images.first_rows > 0
    return _library().load_dataset(images.dataset, images.subset or None, split=split, streaming=streaming, **arguments)


def _is_saved(place: str) -> bool:
    """Returns whether Hugging Face's `save_to_disk` wrote this folder."""
    if not place or (is_url(place) and place.startswith(("http:", "https:"))):
        return False
    return any(remote.read(f"{place.rstrip('/')}/{name}") is not None for name in SAVED)


def _saved(images: HuggingFaceImages, place: str) -> Any:
    """Opens a folder that `save_to_disk` wrote. Raises UsageError if a split has to be chosen."""
    saved = _library().load_from_disk(place if is_url(place) else str(user_path(place)))
    if not hasattr(saved, "keys"):
        own = str(saved.split or images.split)
        if images.split not in ("", own):
            raise UsageError(f"{images.root}: this is the split {own}; leave pictures.split out")
        return saved
    names = list(saved.keys())
    if images.split not in names and (images.split or len(names) != 1):
        raise UsageError(f"{images.root} has the splits {', '.join(names)}; choose one with pictures.split")
    return saved[images.split or names[0]]


def _data(images: HuggingFaceImages) -> dict[str, Any]:
    """Returns the arguments of `datasets.load_dataset` that name files."""
    suffixes = _SUFFIXES.get(images.dataset)
    if suffixes is None:
        _check_folder(images)
    if not images.data:
        if suffixes is not None:
            raise UsageError(f"pictures.dataset={images.dataset} needs pictures.data, a path or URL of the files")
        return {}
    if suffixes is not None:
        more = {"drop_metadata": True, "drop_labels": True} if images.dataset == "imagefolder" else {}
        return {"data_files": list(map(remote.escape, _found(images, images.data))), **more}
    data = images.data if is_url(images.data) else str(user_path(images.data))
    is_files = not Path(data).is_dir() and ("*" in data or PurePosixPath(data).suffix)
    return {"data_files" if is_files else "data_dir": data}


def _check_folder(images: HuggingFaceImages) -> None:
    """Raises UsageError for a folder that the library would take for a pattern."""
    folder = user_path(images.dataset)
    if remote.WILDCARDS & set(str(folder.absolute())) and folder.is_dir():
        raise UsageError(
            f"{images.root} cannot be loaded: its path has one of the characters {' '.join(sorted(remote.WILDCARDS))}; set "
            f"pictures.dataset=parquet (or webdataset) pictures.data={images.dataset}, or rename the folder"
        )


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
    """Returns the encoded image in a cell: a dict with the keys bytes and path, or None.

    Raises:
        UnusableImage: The image is missing, too large or unreadable.
    """
    cell = cell or {"bytes": None, "path": None}
    path: Any = cell["path"]
    if cell["bytes"] is None and path and has_paths:
        return (RemoteFile(path) if is_url(path) else FileSource(Path(path))).read()
    if cell["bytes"] is None and path:
        raise UnusableImage(f"{name} has a path ({path}) and no image", reason=SkipReason.PATH)
    data: bytes = cell["bytes"] or b""
    check_bytes(name, len(data))
    return data


def _library() -> Any:
    # On demand, because the import takes seconds.
    return importlib.import_module("datasets")


def _unreadable(images: HuggingFaceImages, error: Exception) -> UsageError:
    cause = error.__cause__ or error
    if isinstance(cause, UsageError):
        is_named = images.root in cause.message
        return cause if is_named else UsageError(f"{images.root} cannot be loaded: {cause.message}")
    message = " ".join(redacted(str(cause)).split())[:600] or type(cause).__name__
    remedy = f"; pip install {cause.name}" if isinstance(cause, ImportError) else ""
    if "same prefix or the same types" in message:  # the library reads the shards of a hub's dataset
        remedy = f"; set pictures.dataset=webdataset pictures.data=hf://datasets/{images.dataset}"
    return UsageError(
        f"{images.root} cannot be loaded: {message}{remedy}; expected a dataset of the Hugging Face hub, or imagefolder, "
        "webdataset or parquet with files in pictures.data"
    )
