"""Reads the images in tar archives of the WebDataset format, in which files of one sample share a name up to its first
dot. Samples may hold images of different formats."""

import importlib
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

from openmaia.core.errors import UsageError
from openmaia.datasets.reading import SkipReason, UnusableImage, check_bytes, has_image_suffix
from openmaia.datasets.remote import is_url, shown

ARCHIVES = (".tar", ".tar.gz", ".tgz")


class Member(NamedTuple):
    """A file in a shard, or a sample without an image."""

    name: str
    data: bytes
    """The encoded image; empty if `skipped`."""
    skipped: SkipReason | None = None


def read_images(place: str, column: str) -> Iterator[Member]:
    """Yields the images of a shard in their order, and at the end its samples without an image.

    Archives in the archive are read like shards. Hidden files are left out.

    Args:
        place: Path or URL of the archive.
        column: The part of the names behind the first dot, such as "jpg", of the images to read. Empty for all images,
            of which a sample may have only one then.

    Raises:
        UsageError: The archive is damaged, or a sample has several images and there is no `column`.
    """
    fsspec: Any = importlib.import_module("fsspec")
    try:
        with fsspec.open(place, "rb", expand=False) if is_url(place) else open(place, "rb") as file:
            yield from _members(file, column, depth=0)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{shown(place)} cannot be read as a tar archive: {error}") from error


def _members(file: IO[bytes], column: str, depth: int) -> Iterator[Member]:
    samples: dict[str, str] = {}
    """The image of each sample by the sample's name; empty without one."""
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if member.isdir() or any(part.startswith(".") for part in path.parts):
                continue
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and path.name.lower().endswith(ARCHIVES) and depth == 0:
                yield from _members(content, column, depth + 1)
                continue
            stem, _, kind = path.name.partition(".")
            sample = str(path.with_name(stem or path.name))
            samples.setdefault(sample, "")
            if kind.lower() != column.lower() if column else not has_image_suffix(path.name):
                continue
            if samples[sample]:
                kinds = ", ".join(each.partition(".")[2] for each in (samples[sample], path.name))
                raise UsageError(f"sample {sample} has several images; choose one with pictures.column of {kinds}")
            samples[sample] = path.name
            yield _read(member, content)
    yield from (Member(sample, b"", SkipReason.NO_IMAGE) for sample, image in samples.items() if not image)


def _read(member: tarfile.TarInfo, content: IO[bytes] | None) -> Member:
    if content is None:
        return Member(member.name, b"", SkipReason.UNREADABLE)  # a link
    try:
        check_bytes(member.name, member.size)
    except UnusableImage as error:
        return Member(member.name, b"", error.reason)
    return Member(member.name, content.read())
