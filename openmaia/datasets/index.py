"""Reads and writes index.json, which lists the images of a dataset folder with their kind, caption and category."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError, UsageError

ImageKind = Literal["photo", "cutout", "texture"]
"""A photograph, an object on a transparent background, or a texture."""

INDEX_FILE = "index.json"
_FORMAT = "openmaia-pictures-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """What index.json says of an image."""

    path: str
    """Relative to the folder of index.json, with slashes."""
    kind: ImageKind
    caption: str
    category: str
    """Such as "animals/birds"."""
    package: str
    """The Debian or pip package from which the image was taken."""


def write(root: Path, entries: Iterable[IndexEntry], packages: dict[str, str]) -> None:
    """Writes index.json. `packages` maps the names of Debian or pip packages to their versions."""
    files = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    document = {"format": _FORMAT, "packages": packages, "files": files}
    (root / INDEX_FILE).write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load(root: Path) -> dict[str, IndexEntry]:
    """Returns the entries by path. There are none without index.json, or if another program wrote it.

    Raises:
        StoreError: The index is damaged.
        UsageError: The folder cannot be read.
    """
    try:
        text = (root / INDEX_FILE).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(
            f"{root} cannot be read ({error.strerror}); change its permissions or name another folder"
        ) from error
    if _FORMAT not in text[:200]:
        return {}
    try:
        return {entry.path: entry for entry in map(_entry, parse_json(text)["files"])}
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(f"{root / INDEX_FILE} is damaged: {error}; remove the folder and prepare it again") from error


def _entry(record: dict[str, Any]) -> IndexEntry:
    values = {field.name: record[field.name] for field in fields(IndexEntry)}
    if not all(isinstance(value, str) for value in values.values()) or values["kind"] not in get_args(ImageKind):
        raise ValueError(f"{values} is not a valid entry")
    return IndexEntry(**values)
