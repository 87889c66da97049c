"""Prepares a folder of natural images from Debian packages, or from installed pip packages if those are not available.

The folder is built once per cache folder. Layout: photos/<category>/<name>.<ext>, cutouts/<category>/<name>.png,
textures/<category>/<name>.png, index.json, and the copyright files of the packages in the hidden folder .copyright.
"""

import fcntl
import hashlib
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from openmaia.core.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.datasets import index
from openmaia.offline.packaged import apt
from openmaia.offline.packaged.sources import SOURCES, PackagedImage, installed

_NAME = "packages-v1"
_FALLBACK = "installed-v1"
_FOLDERS = {"photo": "photos", "cutout": "cutouts", "texture": "textures"}


def fetch(cache: Path, progress: Callable[[str], None]) -> Path:
    """Returns the folder of the packaged images. The first call downloads 270 MB; concurrent calls wait for each other.

    If the Debian packages are not available, the folder holds the few images of installed pip packages, and the next
    call tries to download the Debian packages again.

    Raises:
        ServiceError: No package provides any image.
        UsageError: The folder cannot be written.
    """
    if (cache / _NAME / index.INDEX_FILE).is_file():
        return cache / _NAME  # also where the folder cannot be written
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / f"{_NAME}.lock").open("w")
    except OSError as error:
        raise UsageError(f"paths.cache={cache} cannot be written ({error.strerror}); give another folder") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (cache / _NAME / index.INDEX_FILE).is_file():
            return cache / _NAME
        try:
            return _build(cache / _NAME, lambda partial: _from_debian(partial, progress))
        except (OpenMaiaError, OSError) as error:
            progress(
                f"no images from Debian packages ({error}); using the few images of pip packages, which include no cut-outs"
            )
        if (cache / _FALLBACK / index.INDEX_FILE).is_file():
            return cache / _FALLBACK
        return _build(cache / _FALLBACK, lambda partial: _from_pip())


def _build(target: Path, collect: Callable[[Path], tuple[list[PackagedImage], dict[str, str]]]) -> Path:
    # Under a temporary name first, so that the folder is either complete or absent.
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        images, versions = collect(partial)
        index.write(partial, _place(partial, images), versions)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _from_debian(partial: Path, progress: Callable[[str], None]) -> tuple[list[PackagedImage], dict[str, str]]:
    work, copyrights = partial / "work", partial / ".copyright"
    work.mkdir()
    copyrights.mkdir()
    trees = apt.fetch(list(SOURCES), work, progress)
    images: list[PackagedImage] = []
    for package, tree in trees.items():
        progress(f"sorting the images of {package}")
        copyright_file = tree / "usr/share/doc" / package / "copyright"
        if copyright_file.is_file():
            shutil.copy(copyright_file, copyrights / package)
        try:
            images.extend(SOURCES[package](tree / "usr/share"))
        except (ValueError, struct.error, zlib.error) as error:
            raise ServiceError(f"{package} holds a damaged file: {error}") from error
    if not any(image.kind == "cutout" for image in images):
        raise ServiceError("the archive of this system has no tuxpaint-stamps-default, so there are no cut-outs")
    versions = {package: apt.version(tree) for package, tree in trees.items()}
    shutil.rmtree(work)
    return images, versions


def _from_pip() -> tuple[list[PackagedImage], dict[str, str]]:
    images = list(installed())
    if not images:
        raise ServiceError(
            "no images: neither apt-get nor scikit-image or scikit-learn could provide any; a folder of images was "
            "expected; give one of your own, or pip install scikit-image"
        )
    return images, {}


def _place(root: Path, images: Iterable[PackagedImage]) -> Iterator[index.IndexEntry]:
    taken: set[str] = set()
    for image in images:
        folder = "/".join([_FOLDERS[image.kind], *map(_plain, image.category.split("/"))])
        stem, suffix = f"{folder}/{_plain(image.name)}", image.suffix.lower()
        path = f"{stem}{suffix}"
        if path in taken:
            # Two packages may use the same name; a digest of the content makes the path independent of their order.
            path = f"{stem}-{hashlib.sha256(image.data).hexdigest()[:8]}{suffix}"
        taken.add(path)
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(image.data)
        category = folder.partition("/")[2]
        yield index.IndexEntry(
            path=path, kind=image.kind, caption=image.caption, category=category, package=image.package
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-") or "unnamed"
