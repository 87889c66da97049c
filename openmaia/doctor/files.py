"""The files of a repository: in a folder, in the Hugging Face cache, or on the hub."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open

UNTOLD = "?"
"""In place of a type: of weights that nobody has looked into."""

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, UNTOLD: 2}
"""Bytes of the floating-point types that are converted when they are loaded. What is not told is mostly 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """size: bytes, here or else on the hub. path: where it is on this machine, None where it has to be fetched.
    published: bytes on the hub; 0 where that is not known."""

    size: int
    path: Path | None
    published: int = 0


Files = dict[str, File]
"""By their names in the repository."""


def of_folder(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): File(size=path.stat().st_size, path=path)
        for path in folder.rglob("*")
        if path.is_file() and ".cache" not in path.relative_to(folder).parts
    }


def of_cache(repository: str, revision: str | None, cache: Path) -> tuple[str, Files]:
    """(commit, files) of what the cache has for a revision; ("", {}) where it has nothing."""
    try:
        snapshot = Path(snapshot_download(repository, revision=revision, cache_dir=cache, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return "", {}
    return snapshot.name, of_folder(snapshot)


def lacking(files: Files, parts: Iterable[str]) -> list[str]:
    """Weights that ought to be there and are not: shards that an index names, and parts that only have a config.

    parts: those that have weights.
    """
    named: set[str] = set()
    for name, file in files.items():
        folder, _, last = name.rpartition("/")
        if last.endswith(".safetensors.index.json") and folder in parts and file.path is not None:
            shards: dict[str, str] = json.loads(file.path.read_text(encoding="utf-8"))["weight_map"]
            named |= {f"{folder}/{shard}".lstrip("/") for shard in shards.values()}
    return sorted(named - files.keys())


def damage(file: File) -> str:
    """Why a file of weights cannot be read; empty where its header promises no more than there is."""
    if file.path is None:
        return ""
    if file.published not in (0, file.size):
        return f"the hub's has {file.published}"
    if file.path.suffix != ".safetensors":
        return "" if file.size else "it is empty"
    try:
        with safe_open(file.path, framework="np"):
            return ""
    except (SafetensorError, OSError) as error:
        return str(error)


def stored(file: File) -> Counter[str]:
    """Bytes of the weights by their type."""
    if file.path is None or file.path.suffix != ".safetensors":
        return Counter({UNTOLD: file.size})
    held: Counter[str] = Counter()
    with safe_open(file.path, framework="np") as opened:
        for name in opened.keys():  # noqa: SIM118 (it is no mapping)
            view = opened.get_slice(name)
            count = 1
            for side in view.get_shape():
                count *= side
            held[view.get_dtype()] += count * width(view.get_dtype())
    return held


def width(dtype: str) -> int:
    """Bytes of one number: F8_E4M3, I64, U8, BOOL, …"""
    bits = "".join(char for char in dtype.partition("_")[0] if char.isdigit())
    return int(bits) // 8 if bits else 1
