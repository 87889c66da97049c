"""Tar shards and Parquet files for tests, and the libraries made of them."""

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from openmaia import build
from openmaia.config import load
from openmaia.pictures.library import Item, Library
from openmaia.schema import Config

from . import making

COUNT = 24


def encoded(seed: int, suffix: str = "jpg") -> bytes:
    buffer = io.BytesIO()
    making.picture(seed).save(buffer, {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[suffix])
    return buffer.getvalue()


def pictures(count: int = COUNT) -> dict[str, bytes]:
    suffixes = ("jpg", "png", "webp")
    return {f"{seed:04}.{suffixes[seed % 3]}": encoded(seed, suffixes[seed % 3]) for seed in range(count)}


def write_tar(path: Path, files: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=kind) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_parquet(path: Path, columns: Mapping[str, Any], group: int = 5, metadata: Any = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(dict(columns)).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=group)  # pyright: ignore[reportUnknownMemberType]
    return path


def config(root: Path | str, kind: str, cache: Path) -> Config:
    sources = ["name=x", "units=all", "target.name=net", f"pictures.kind={kind}", f"paths.cache={cache}"]
    return load([*sources, f"pictures.folder={root}"] if root else sources)


def opened(root: Path | str, kind: str = "webdataset", cache: Path = Path("/nonexistent")) -> Library:
    return build.library(config(root, kind, cache))


def told(items: Iterable[Item]) -> list[tuple[str, str, str]]:
    return sorted((item.digest, item.half, item.kind) for item in items)


def shards(folder: Path, kind: str) -> Path:
    """Two shards of them, with captions beside."""
    given = list(pictures().items())
    for number, part in enumerate((given[:10], given[10:])):
        if kind == "webdataset":
            beside = {name.split(".")[0] + ".txt": b"a caption" for name, _ in part}
            write_tar(folder / f"shard-{number}.tar", dict(sorted((dict(part) | beside).items())))
        elif kind == "binary":
            write_parquet(folder / f"{number}.parquet", {"img": [data for _, data in part], "label": range(len(part))})
        else:
            cells = [{"bytes": data, "path": name} for name, data in part]
            write_parquet(folder / f"{number}.parquet", {"label": range(len(part)), "image": cells})
    return folder


KINDS = ["webdataset", "binary", "struct"]


def config_kind(kind: str) -> str:
    return "webdataset" if kind == "webdataset" else "parquet"
