"""Converts records to Parquet and back. Each turn is a row, and all other fields of the record are in the file's
header."""

import json
import math
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import cache
from typing import Any, cast, get_type_hints

import pyarrow as pa

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError
from openmaia.core.images import EncodedImage, PixelBox
from openmaia.core.messages import Part
from openmaia.core.services import ServiceUsage
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.runs import tables
from openmaia.runs.evidence import (
    Confirmation,
    FailedTest,
    failed_test_to_json,
    restore_confirmation,
    restore_evidence,
    restore_failed_test,
    to_json,
)
from openmaia.runs.ids import InvestigationId
from openmaia.runs.records import (
    RECORD_VERSION,
    Did,
    ExperimentStatus,
    GivenImage,
    ImageEntry,
    Record,
    ReplyNote,
    Stop,
    ToolCall,
    Turn,
)
from openmaia.runs.summary import digest_prompts, summary, wrong_key

_Activation = dict[str, float | bool] | None


# Fields that may be null. A file in which another one is null has another schema, and is refused.
_OPTIONAL = frozenset(("text", "image", "mask", "seen", "result", "error"))


def _field(name: str, kind: pa.DataType) -> "pa.Field[Any]":
    return pa.field(name, kind, nullable=name in _OPTIONAL)


def _struct(fields: Mapping[str, pa.DataType]) -> pa.StructType:
    return pa.struct([_field(*each) for each in fields.items()])


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_TEXT, _INT, _FLOAT, _TEXTS = pa.string(), pa.int64(), pa.float64(), _list(pa.string())
_PART = _struct({"text": _TEXT, "image": _TEXT})
_ENTRY = _struct(
    {"id": _TEXT, "original": _TEXT, "did": _TEXT, "prompt": _TEXT, "of": _TEXT, "missing": _TEXTS}
    | {"mask": pa.binary(), "activation": _TEXT, "seen": _list(_INT), "hypothesis": _TEXT}
)
_GIVEN = _struct({"id": _TEXT, "is_masked": pa.bool_()})
_CALL = _struct(
    {"ordinal": _INT}
    | dict.fromkeys(("name", "arguments", "arguments_digest", "result", "error"), _TEXT)
    | {"entries": _list(_ENTRY), "shown": _list(_PART), "asked": _TEXTS}
    | {"given": _list(_GIVEN)}
    | {"activations": _list(_FLOAT), "seconds": _FLOAT}
)
_IMAGE = _struct({"digest": _TEXT, "data": pa.binary(), "sources": _TEXTS, "recipe": _TEXT})
_USAGE = _struct(
    {"service": _TEXT, "requests": _INT}
    | dict.fromkeys(("seconds", "gpu_seconds", "dollars"), _FLOAT)
    | {"unpriced": _INT}
)
_COLUMNS = (
    {
        "index": _INT,
        "reply": _TEXT,
        "reasoning": _TEXT,
        "code": _TEXT,
        "hypotheses": _TEXTS,
        "forgiven": _TEXTS,
        "notes": _TEXTS,
        "status": _TEXT,
    }
    | {"calls": _list(_CALL), "observation": _list(_PART), "output_digest": _TEXT}
    | dict.fromkeys(("prompt_tokens", "cached_tokens", "generated_tokens"), _INT)
    | {"left_out": _TEXT, "backbone_seconds": _FLOAT, "experiment_seconds": _FLOAT}
    | {"spent": _list(_USAGE), "images": _list(_IMAGE)}
)
_SCHEMA = pa.schema([_field(*each) for each in _COLUMNS.items()])

_CONFIRMATION = -1
"""Value of the column `index`, elsewhere the number of the turn, in the row with the images of `Record.confirmation`."""

_CRC = 4
"""Length in bytes of the CRC-32 before a turn's Parquet data. Parquet's own checksums do not cover the file's footer."""

_INCOMPLETE = (IndexError, KeyError, TypeError, ValueError)


_BLANK: dict[pa.DataType, Any] = {_TEXT: "", _INT: 0, _FLOAT: 0.0}

_LATEST = 253_402_300_799.0
"""The end of the year 9999, in seconds since 1970. Python has no later dates."""


class RecordedImage(EncodedImage):
    """An image read from a record, with the digest that is stored beside it."""

    def __init__(self, *, digest: str, data: bytes, sources: Sequence[str] = (), recipe: str = ""):
        super().__init__(data=data, sources=tuple(sources), recipe=recipe)
        self.__dict__["digest"] = digest


def write_turn(turn: Turn, owner: str = "") -> bytes:
    """Converts a turn of a journal to the content of its file: a CRC-32, followed by Parquet. `owner` is stored with
    it."""
    data = tables.dump([_row(turn)], _SCHEMA, {"version": RECORD_VERSION, "owner": owner} | _failed_tests([turn]))
    return zlib.crc32(data).to_bytes(_CRC) + data


def read_turn(data: bytes, owner: str = "") -> Turn:
    """Reads a turn of a journal. Raises StoreError if it is damaged, of another version, or of another owner."""
    if int.from_bytes(data[:_CRC]) != zlib.crc32(data[_CRC:]):
        raise StoreError("a turn is damaged: its checksum does not match")
    rows, header = tables.load(data[_CRC:], "a turn", schema=_SCHEMA)
    check_version(header)
    if header.get("owner") != owner:
        raise StoreError(f"a turn belongs to another investigation than {owner!r}")
    with _complete("a turn"):
        return _with_failed_tests([_turn(rows[0])], header)[0]


@contextmanager
def _complete(what: str) -> Generator[None]:
    try:
        yield
    except _INCOMPLETE as error:
        raise StoreError(f"{what} is incomplete: {error!r}") from error


def write_record(record: Record) -> bytes:
    """Converts a record to a Parquet file. Its images are lossless."""
    header = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "turns"}
    header |= {"unit": asdict(record.unit), "summary": summary(record)}
    header |= {"evidence": to_json(record.evidence), "confirmation": to_json(record.confirmation)}
    header |= _failed_tests(record.turns)
    if not record.effects:  # as most: they are not asked for by default
        del header["effects"]
    rows = [_row(turn) for turn in record.turns]
    return tables.dump([*rows, *_confirmation_rows(record.confirmation)], _SCHEMA, header)


def _failed_tests(turns: Sequence[Turn]) -> dict[str, Any]:
    """Returns what the header says of the failed tests, by the numbers of their turns; nothing if there are none. Their
    images are among those of the turn.
    """
    tests = {str(turn.index): failed_test_to_json(turn.failed_test) for turn in turns if turn.failed_test}
    return {"failed_tests": tests} if tests else {}


def _with_failed_tests(turns: Sequence[Turn], header: Mapping[str, Any]) -> list[Turn]:
    stored = _stored_tests(header)
    if unknown := stored.keys() - {str(turn.index) for turn in turns}:
        raise ValueError(f"it has failed tests of turns that it lacks: {', '.join(sorted(unknown))}")
    return [
        replace(turn, failed_test=restore_failed_test(stored[str(turn.index)], dict(turn.images)))
        if str(turn.index) in stored
        else turn
        for turn in turns
    ]


def _stored_tests(header: Mapping[str, Any]) -> dict[str, Any]:
    tests: Any = header.get("failed_tests", {})
    if not isinstance(tests, dict):
        raise ValueError("its failed tests have another type than OpenMAIA writes")
    stored = cast("dict[str, Any]", tests)
    for index, test in stored.items():
        with_images = test | {"confirmation": test["confirmation"] | {"images": {}}}
        if (place := find_mistyped(with_images, FailedTest, finite=False)) is not None:
            raise ValueError(f"the failed test of turn {index}{place} has another type than OpenMAIA writes")
        if not math.isfinite(test["seconds"]):
            raise ValueError(f"the failed test of turn {index} has a time that is no number")
    return stored


def _confirmation_rows(confirmation: Confirmation | None) -> list[dict[str, Any]]:
    if confirmation is None:
        return []
    blank: dict[str, Any] = {name: _BLANK.get(kind, []) for name, kind in _COLUMNS.items()}
    return [blank | {"index": _CONFIRMATION, "images": _images(confirmation.images)}]


def read_record(data: bytes) -> Record:
    """Reads a record. Raises StoreError if the file is damaged, has another version, or is not one of OpenMAIA."""
    rows, header = tables.load(data, "a record", schema=_SCHEMA)
    check_record(header)
    with _complete("a record"):
        return _record(rows, header)


def check_record(header: dict[str, Any], investigation: InvestigationId | None = None) -> dict[str, Any]:
    """Returns the summary in the header of a record's file.

    Raises StoreError if the header has another version, lacks something, or belongs to another investigation than the
    given one.
    """
    check_version(header)
    if not isinstance(header.get("summary"), dict):
        raise StoreError("a record without a summary")
    row: dict[str, Any] = header["summary"]
    if (key := wrong_key(row)) is not None:
        raise StoreError(f"the summary of a record lacks {key!r}, or has it with another type than OpenMAIA writes")
    found = InvestigationId.of_row(row)
    if investigation not in (None, found):
        raise StoreError(f"the record of {found.unit} (replicate {found.replicate}) under the name of another")
    identity: dict[str, Any] = {"unit": asdict(found.unit)} | {key: row[key] for key in _SAME}
    if different := [key for key, value in identity.items() if header.get(key) != value]:
        raise StoreError(f"a record whose {different[0]} differs from that of its summary")
    return row


_SAME = ("replicate", "stop", "cause", "description", "labels", "backbone", "sandbox")
"""Keys of the summary that are also keys of the header."""


def read_drawn_prompts(data: bytes) -> list[str]:
    """Returns what `Record.drawn_prompts` returns, from a record's file, without loading images.

    An editing instruction is preceded by the digest of the image to edit, a question by the word "viewer". The prompts
    of the failed tests and of the confirmation come last.

    Raises StoreError if the file is damaged, has another version, or is not one of OpenMAIA.
    """
    rows, header = tables.load(data, "a record", ["calls.list.element.asked"], _SCHEMA)
    row = check_record(header)
    with _complete("a record"):
        asked = [prompt for row in rows for call in row["calls"] for prompt in call["asked"]]
        failed = sorted(_stored_tests(header).items(), key=lambda item: int(item[0]))
        tests: list[dict[str, Any]] = [test["confirmation"] for _, test in failed]
        tests += [header["confirmation"]] if header["confirmation"] else []
        asked += [sample["prompt"] for test in tests for sample in test["samples"]]
    if digest_prompts(asked) != row["drawn"]:
        raise StoreError("a record whose turns are not those of its summary")
    return asked


def _record(rows: list[dict[str, Any]], header: dict[str, Any]) -> Record:
    header = {"effects": [], **header}
    for key, hint in _header_hints().items():
        stored = header[key] | {"images": {}} if key == "confirmation" and header[key] else header[key]
        if (place := find_mistyped(stored, hint, finite=False)) is not None:
            raise ValueError(f"{key}{place} has another type than OpenMAIA writes")
    values: dict[str, Any] = {
        key: tuple(cast(list[Any], header[key])) if isinstance(header[key], list) else header[key]
        for key in _header_hints()
    }
    if not 0 <= values["started"] <= _LATEST:
        raise ValueError(f"started is {values['started']}")
    values["unit"], values["stop"] = Unit(**header["unit"]), Stop(header["stop"])
    turns = [_turn(row) for row in rows if row["index"] != _CONFIRMATION]
    if [turn.index for turn in turns] != list(range(len(turns))):
        raise ValueError("its turns are not numbered from 0")
    values["turns"] = hydrate(_with_failed_tests(turns, header))
    values["evidence"] = restore_evidence(header["evidence"])
    if values["confirmation"] is not None:
        images = _images_of([image for row in rows if row["index"] == _CONFIRMATION for image in row["images"]])
        values["confirmation"] = restore_confirmation(header["confirmation"], images)
    return Record(**values)


@cache
def _header_hints() -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(Record).items() if name != "turns"}


def check_version(header: dict[str, Any]) -> None:
    """Raises StoreError if the header of a stored record or turn has another version than this program writes."""
    if header.get("version") != RECORD_VERSION:
        raise StoreError(
            f"a record has version {str(header.get('version'))[:40]}; this OpenMAIA reads version {RECORD_VERSION}"
        )


def hydrate(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Returns turns with the pixels of all their images. A stored turn has those only of images that occur first in it."""
    known: dict[str, EncodedImage] = {}

    def parts(values: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(value if isinstance(value, str) else known.get(value.digest, value) for value in values)

    whole: list[Turn] = []
    for turn in turns:
        known.update(turn.images)
        calls = tuple(replace(call, shown=parts(call.shown)) if call.shown else call for call in turn.calls)
        whole.append(replace(turn, calls=calls, observation=parts(turn.observation)))
    return tuple(whole)


def _row(turn: Turn) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(turn, name) for name in _SCHEMA.names}
    row["calls"] = [_call_row(call) for call in turn.calls]
    row["observation"] = [_part_row(part) for part in turn.observation]
    row["spent"] = [{"service": service} | asdict(usage) for service, usage in sorted(turn.spent.items())]
    row["images"] = _images(turn.images)
    return row


def _call_row(call: ToolCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in _CALL.names} | {
        "entries": [asdict(entry) | {"activation": json.dumps(entry.activation)} for entry in call.entries],
        "shown": [_part_row(part) for part in call.shown],
        "given": [asdict(image) for image in call.given],
    }


def _part_row(part: Part) -> dict[str, str | None]:
    return {"text": part, "image": None} if isinstance(part, str) else {"text": None, "image": part.digest}


def _images(images: Mapping[str, EncodedImage]) -> list[dict[str, Any]]:
    return [
        {"digest": digest, "data": image.packed().data, "sources": image.sources, "recipe": image.recipe}
        for digest, image in sorted(images.items())
    ]


def _images_of(rows: list[dict[str, Any]]) -> dict[str, EncodedImage]:
    return {row["digest"]: RecordedImage(**row) for row in rows}


def _box(edges: list[int] | None) -> PixelBox | None:
    if edges is None:
        return None
    left, top, right, bottom = edges
    return left, top, right, bottom


def _typed(entry: dict[str, Any]) -> dict[str, Any]:
    return {"did": Did(entry["did"]), "missing": tuple(entry["missing"]), "seen": _box(entry["seen"])}


def _turn(row: dict[str, Any]) -> Turn:
    images = _images_of(row["images"])

    def part(value: dict[str, Any]) -> Part:
        digest = value["image"]
        # An image of an earlier turn has no data here; see `hydrate`.
        return value["text"] if digest is None else images.get(digest) or RecordedImage(digest=digest, data=b"")

    def call(row: dict[str, Any]) -> ToolCall:
        values = {key: value for key, value in row.items() if key != "activations"}
        # One JSON text for all activations of the call: a turn may have hundreds, and each text costs a call of the parser.
        activations = parse_json(f"[{','.join(entry['activation'] for entry in row['entries'])}]")
        if find_mistyped(activations, list[_Activation], finite=False) is not None:
            raise ValueError(f"an activation of call {row['ordinal']} is no dictionary of numbers")
        values["entries"] = tuple(
            ImageEntry(**entry | _typed(entry) | {"activation": activation})
            for entry, activation in zip(row["entries"], activations, strict=True)
        )
        values["shown"], values["asked"] = tuple(map(part, row["shown"])), tuple(row["asked"])
        values["given"] = tuple(GivenImage(**given) for given in row["given"])
        return ToolCall(**values)

    durations = [row["backbone_seconds"], row["experiment_seconds"], *(call["seconds"] for call in row["calls"])]
    durations += [usage[key] for usage in row["spent"] for key in ("seconds", "gpu_seconds", "dollars")]
    if not all(map(math.isfinite, durations)):
        raise ValueError(f"turn {row['index']} has a time or a cost that is no number")
    values = dict(row)
    values["calls"] = tuple(map(call, row["calls"]))
    values["observation"] = tuple(map(part, row["observation"]))
    values["hypotheses"], values["forgiven"] = tuple(row["hypotheses"]), tuple(row["forgiven"])
    values["notes"], values["status"] = tuple(map(ReplyNote, row["notes"])), ExperimentStatus(row["status"])
    values["spent"] = {usage.pop("service"): ServiceUsage(**usage) for usage in row["spent"]}
    values["images"] = images
    return Turn(**values)
