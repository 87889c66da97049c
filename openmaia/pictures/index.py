"""index.json: what is known about every picture of a prepared library."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from openmaia.errors import StoreError, UsageError

Kind = Literal["photo", "cutout", "texture"]

FILE = "index.json"
_FORMAT = "openmaia-pictures-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """path: relative to the library, with slashes. category: folders below the kind, such as "animals/birds"."""

    path: str
    kind: Kind
    caption: str
    category: str
    package: str
    licence: str


def write(root: Path, entries: Iterable[IndexEntry], packages: dict[str, str]) -> None:
    """packages: name to version."""
    files = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    document = {"format": _FORMAT, "packages": packages, "files": files}
    (root / FILE).write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load(root: Path) -> dict[str, IndexEntry]:
    """By path. Empty where there is no index of ours: a user's folder may hold an index.json of its own."""
    try:
        data = (root / FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(
            f"{root} cannot be read ({error.strerror}); mend its rights, or name another folder"
        ) from error
    try:
        document: Any = json.loads(data)
    except ValueError as error:
        if _FORMAT.encode() not in data[:200]:
            return {}
        raise StoreError(f"{root / FILE} is damaged: {error}; remove the folder and prepare it again") from error
    if not isinstance(document, dict) or cast(dict[str, Any], document).get("format") != _FORMAT:
        return {}
    try:
        return {entry.path: entry for entry in map(_entry, cast(dict[str, Any], document)["files"])}
    except (KeyError, TypeError, ValueError) as error:
        message = f"{root / FILE} is damaged: {error}; remove the folder and prepare it again"
        raise StoreError(message) from error


def _entry(record: dict[str, Any]) -> IndexEntry:
    values = {field.name: record[field.name] for field in fields(IndexEntry)}
    if not all(isinstance(value, str) for value in values.values()) or values["kind"] not in get_args(Kind):
        raise ValueError(f"an entry reads {values}")
    return IndexEntry(**values)
