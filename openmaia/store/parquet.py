"""Records as Parquet: one row per turn, the rest of the record in the file's metadata. The journal holds such rows singly."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Literal, cast

import pyarrow as pa

from openmaia.errors import StoreError
from openmaia.images import Picture
from openmaia.messages import Part
from openmaia.services import Spent
from openmaia.store import tables
from openmaia.store.evidence import Confirmation, confirmation_of, evidence_of, plain
from openmaia.store.records import VERSION, ImageEntry, Record, Stop, ToolCall, Turn
from openmaia.units import Unit

Quality = Literal["exact", "webp"]

_PART = pa.struct([("text", pa.string()), ("picture", pa.string())])
_ENTRY = pa.struct(
    [
        ("id", pa.string()),
        ("original", pa.string()),
        ("mask", pa.binary()),
        ("activation", pa.string()),
        ("hypothesis", pa.string()),
    ]
)
_CALL = pa.struct(
    [
        ("ordinal", pa.int32()),
        ("name", pa.string()),
        ("arguments", pa.string()),
        ("arguments_digest", pa.string()),
        ("result", pa.string()),
        ("error", pa.string()),
        ("entries", pa.list_(_ENTRY)),
        ("shown", pa.list_(_PART)),
        ("asked", pa.list_(pa.string())),
        ("activations", pa.list_(pa.float64())),
        ("seconds", pa.float64()),
    ]
)
_PICTURE = pa.struct(
    [("digest", pa.string()), ("data", pa.binary()), ("sources", pa.list_(pa.string())), ("recipe", pa.string())]
)
_SPENT = pa.struct(
    [("service", pa.string()), ("requests", pa.int64()), ("seconds", pa.float64()), ("gpu_seconds", pa.float64())]
)
_SCHEMA = pa.schema(
    [
        ("index", pa.int32()),
        ("reply", pa.string()),
        ("code", pa.string()),
        ("hypotheses", pa.list_(pa.string())),
        ("forgiven", pa.list_(pa.string())),
        ("status", pa.string()),
        ("calls", pa.list_(_CALL)),
        ("observation", pa.list_(_PART)),
        ("output_digest", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("generated_tokens", pa.int64()),
        ("left_out", pa.string()),
        ("backbone_seconds", pa.float64()),
        ("experiment_seconds", pa.float64()),
        ("spent", pa.list_(_SPENT)),
        ("pictures", pa.list_(_PICTURE)),
    ]
)

CONFIRMING = -1
"""The index of the row that holds the pictures of the test behind the last turn."""

MISFIT = (IndexError, KeyError, TypeError, ValueError)


def write_turn(turn: Turn) -> bytes:
    """For the journal: pictures exactly as they were, so that a replay is exact."""
    return tables.pack([_row(turn, "exact")], _SCHEMA, {"version": VERSION})


def read_turn(data: bytes) -> Turn:
    rows, header = tables.unpack(data)
    check_version(header)
    try:
        return _turn(rows[0])
    except MISFIT as error:
        raise StoreError(f"a turn that lacks something: {error!r}") from error


def write_record(record: Record) -> bytes:
    """For keeping: pictures as WebP, with the digest of the exact pixels."""
    header = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "turns"}
    header |= {"unit": asdict(record.unit), "summary": summary(record)}
    header |= {"evidence": plain(record.evidence), "confirmation": plain(record.confirmation)}
    rows = [_row(turn, "webp") for turn in record.turns]
    return tables.dump([*rows, *_confirming(record.confirmation)], _SCHEMA, header)


def _confirming(confirmation: Confirmation | None) -> list[dict[str, Any]]:
    if confirmation is None:
        return []
    return [dict.fromkeys(_SCHEMA.names) | {"index": CONFIRMING, "pictures": _pictures(confirmation.pictures, "webp")}]


def read_record(data: bytes) -> Record:
    rows, header = tables.load(data)
    check_version(header)
    try:
        return _record(rows, header)
    except MISFIT as error:
        raise StoreError(f"a record that lacks something: {error!r}") from error


def _record(rows: list[dict[str, Any]], header: dict[str, Any]) -> Record:
    known = {field.name for field in fields(Record)}
    values: dict[str, Any] = {
        key: tuple(cast(list[Any], value)) if isinstance(value, list) else value
        for key, value in header.items()
        if key in known
    }
    values["unit"], values["stop"] = Unit(**header["unit"]), Stop(header["stop"])
    values["turns"] = hydrated([_turn(row) for row in rows if row["index"] != CONFIRMING])
    values["evidence"] = evidence_of(header["evidence"])
    if values["confirmation"] is not None:
        kept = [p for row in rows if row["index"] == CONFIRMING for p in row["pictures"]]
        values["confirmation"] = confirmation_of(header["confirmation"], {p["digest"]: Kept(**p) for p in kept})
    return Record(**values)


def check_version(header: dict[str, Any]) -> None:
    if header.get("version") != VERSION:
        raise StoreError(f"a record of version {header.get('version')}; this OpenMAIA reads version {VERSION}")


def hydrated(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Each turn holds the pictures that it saw first; this gives later mentions their pixels too."""
    known: dict[str, Picture] = {}

    def parts(values: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(value if isinstance(value, str) else known.get(value.digest, value) for value in values)

    whole: list[Turn] = []
    for turn in turns:
        known.update(turn.pictures)
        calls = tuple(replace(call, shown=parts(call.shown)) for call in turn.calls)
        whole.append(replace(turn, calls=calls, observation=parts(turn.observation)))
    return tuple(whole)


def summary(record: Record) -> dict[str, Any]:
    return {
        "target": record.unit.target,
        "layer": record.unit.layer,
        "index": record.unit.index,
        "replicate": record.replicate,
        "stop": record.stop.value,
        "cause": record.cause,
        "turns": len(record.turns),
        "messages": record.messages,
        "converged": record.converged,
        "tools": record.tool_calls,
        "labels": list(record.labels),
        "description": record.description,
        "seconds": round(record.seconds, 3),
        "tokens": record.tokens,
        "prompt_tokens": sum(turn.prompt_tokens for turn in record.turns),
        "cached_tokens": sum(turn.cached_tokens for turn in record.turns),
        "generated_tokens": sum(turn.generated_tokens for turn in record.turns),
        "spent": {service: asdict(spent) for service, spent in sorted(record.spent.items())},
        "backbone": record.backbone,
        "sandbox": record.sandbox,
        "evidence": record.evidence.state,
        "confirm_auc": record.confirmation.auc() if record.confirmation else None,
    }


def _row(turn: Turn, quality: Quality) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(turn, name) for name in _SCHEMA.names}
    row["calls"] = [
        {name: getattr(call, name) for name in _CALL.names}
        | {
            "entries": [asdict(e) | {"activation": json.dumps(e.activation)} for e in call.entries],
            "shown": [_part(p) for p in call.shown],
        }
        for call in turn.calls
    ]
    row["observation"] = [_part(p) for p in turn.observation]
    row["spent"] = [{"service": service} | asdict(spent) for service, spent in sorted(turn.spent.items())]
    row["pictures"] = _pictures(turn.pictures, quality)
    return row


def _pictures(pictures: Mapping[str, Picture], quality: Quality) -> list[dict[str, Any]]:
    return [
        {"digest": digest, "data": p.data if quality == "exact" else p.webp(), "sources": p.sources, "recipe": p.recipe}
        for digest, p in sorted(pictures.items())
    ]


def _part(part: Part) -> dict[str, str | None]:
    if isinstance(part, str):
        return {"text": part, "picture": None}
    return {"text": None, "picture": part.digest}


def _turn(row: dict[str, Any]) -> Turn:
    pictures = {p["digest"]: Kept(**p) for p in row["pictures"]}

    def parts(values: list[dict[str, Any]]) -> tuple[Part, ...]:
        return tuple(
            v["text"] if v["picture"] is None else pictures.get(v["picture"]) or Kept(digest=v["picture"], data=b"")
            for v in values
        )

    def call(row: dict[str, Any]) -> ToolCall:
        values = {key: value for key, value in row.items() if key != "activations"}
        values["entries"] = tuple(ImageEntry(**e | {"activation": json.loads(e["activation"])}) for e in row["entries"])
        values["shown"], values["asked"] = parts(row["shown"]), tuple(row["asked"])
        return ToolCall(**values)

    values = dict(row)
    values["calls"] = tuple(call(made) for made in row["calls"])
    values["observation"] = parts(row["observation"])
    values["hypotheses"], values["forgiven"] = tuple(row["hypotheses"]), tuple(row["forgiven"])
    values["spent"] = {s.pop("service"): Spent(**s) for s in row["spent"]}
    values["pictures"] = pictures
    return Turn(**values)


class Kept(Picture):
    """A picture from a file: its digest is the one of the exact pixels, also where the data is lossy. data is empty
    where an earlier turn holds it."""

    def __init__(self, *, digest: str, data: bytes, sources: Sequence[str] = (), recipe: str = ""):
        super().__init__(data=data, sources=tuple(sources), recipe=recipe)
        self.__dict__["digest"] = digest
