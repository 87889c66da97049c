"""One investigation as a row: for the history, point by point, and for the table."""

import base64
import io
from collections.abc import Mapping
from typing import Any

from PIL import Image

from openmaia.report.thumbnails import PREFIX, Thumbnails, top
from openmaia.store.records import Record, dumps
from openmaia.store.run import Owed
from openmaia.tracking.ledger import Key
from openmaia.tracking.series import plain
from openmaia.units import Unit

Header = Mapping[str, Any]
"""What `store.parquet.summary` says of a record."""

NUMBERS = ("turns", "messages", "converged", "prompt_tokens", "cached_tokens", "generated_tokens", "seconds")
SCORES = ("positive", "neutral", "auc", "auc_other")
COLUMNS = (
    "exemplars", "unit", "target", "layer", "index", "replicate", "stop", "labels", "description", *NUMBERS,
    "tool_calls", "calls_by_tool", "outcome", *SCORES, "backbone",
)  # fmt: skip


def key(header: Header) -> Key:
    return header["target"], header["layer"], header["index"], header["replicate"]


def owed(key: Key) -> Owed:
    return Owed(unit=Unit(target=key[0], layer=key[1], index=key[2]), replicate=key[3])


def name(header: Header) -> str:
    replicate = f" #{header['replicate']}" if header["replicate"] else ""
    return text(f"{header['layer']}/{header['index']}{replicate}")


def text(value: str) -> str:
    """What W&B can hold: no lone surrogates, and no control characters that would steer a terminal."""
    printable = (c if c.isprintable() or c == "\n" else "\ufffd" for c in value)
    return "".join(printable).encode("utf-8", errors="replace").decode()


def history(header: Header, number: int) -> dict[str, Any]:
    """number: of the row, in the order in which investigations ended."""
    values: dict[str, Any] = {field: header[field] for field in NUMBERS if header.get(field) is not None}
    values |= {"number": number, "name": name(header), "target": text(header["target"]), "stop": header["stop"]}
    values["labels"] = text("; ".join(header["labels"]))
    calls: dict[str, int] = {}
    for tool, count in header["tools"].items():
        calls[plain(tool)] = calls.get(plain(tool), 0) + count
    values |= {f"tools/{tool}": count for tool, count in calls.items()}
    return {f"unit/{field}": value for field, value in values.items()}


def scored(header: Header, scores: Mapping[str, Any], number: int) -> dict[str, Any]:
    values = {field: scores[field] for field in SCORES if scores.get(field) is not None}
    return {f"score/{field}": value for field, value in (values | {"number": number, "name": name(header)}).items()}


def row(header: Header, scores: Mapping[str, Any], picture: Any) -> list[Any]:
    """In the order of COLUMNS. picture: as W&B wants it, or None."""
    tools: Mapping[str, int] = header["tools"]
    values: dict[str, Any] = {
        **{field: header.get(field) for field in COLUMNS},
        **{field: scores.get(field) for field in (*SCORES, "outcome")},
        "exemplars": picture,
        "unit": name(header),
        "labels": "; ".join(header["labels"]),
        "tool_calls": sum(tools.values()),
        "calls_by_tool": dumps(dict(tools)),
    }
    return [text(value) if isinstance(value, str) else value for value in (values[field] for field in COLUMNS)]


def thumbnail(record: Record) -> bytes:
    """The unit's highest exemplars side by side, as PNG; empty where there are none."""
    uris = top(record, Thumbnails(1_000_000))
    images = [Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(PREFIX)))) for uri in uris]
    if not images:
        return b""
    sheet = Image.new("RGB", (sum(i.width for i in images), max(i.height for i in images)), "white")
    at = 0
    for image in images:
        sheet.paste(image, (at, 0))
        at += image.width
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()
