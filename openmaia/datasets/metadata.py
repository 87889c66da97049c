"""Finds out which images the metadata files of an image folder list although they do not exist.

Hugging Face reads only the images that metadata.csv or metadata.jsonl list. OpenMAIA reads all images of a folder.
"""

import csv
import io
import json
import posixpath
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

METADATA_FILES = frozenset({"metadata.csv", "metadata.jsonl", "metadata.parquet"})


def find_missing(files: Iterable[str], read: Callable[[str], bytes | None]) -> list[str]:
    """Returns the paths of images that metadata files list, and that are not among the files.

    Args:
        files: Paths or URLs of the files of a folder, the metadata files among them.
        read: Returns the content of a metadata file, or None if it cannot be read.
    """
    present = set(files)
    listed: dict[str, None] = {}
    for path in sorted(present):
        if posixpath.basename(path) in METADATA_FILES:
            text = (read(path) or b"").decode("utf-8-sig", errors="replace")
            listed |= dict.fromkeys(
                f"{posixpath.dirname(path)}/{posixpath.normpath(name)}" for name in _listed(path, text)
            )
    return [path for path in listed if path not in present]


def _listed(path: str, text: str) -> Iterator[str]:
    try:
        rows: Iterable[Any] = (
            csv.DictReader(io.StringIO(text)) if path.endswith(".csv") else map(json.loads, text.splitlines())
        )
        for row in rows if not path.endswith(".parquet") else ():
            fields = cast(dict[Any, Any], row) if isinstance(row, dict) else {}
            yield from (
                value
                for key, value in fields.items()
                if key in ("file_name", "image_file_name") and isinstance(value, str) and value
            )
    except (ValueError, RecursionError, csv.Error):
        return  # a damaged file lists what it lists up to there
