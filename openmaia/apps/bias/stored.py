"""Tests and failures as Parquet, a row per picture, beside the records of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from openmaia.apps.bias.contexts import Context
from openmaia.apps.bias.effects import Effect, Verdict
from openmaia.apps.bias.failures import Failures
from openmaia.apps.bias.matched import Pair, Side
from openmaia.errors import StoreError
from openmaia.evaluate.bootstrap import Interval
from openmaia.store import tables
from openmaia.store.run import Owed
from openmaia.units import Unit

VERSION = 1
TESTS, FAILURES, VERDICTS = "bias", "bias-failures", "bias.json"

_PICTURES = pa.schema(
    [
        ("context", pa.int64()),
        ("pair", pa.int64()),
        ("role", pa.string()),
        ("prompt", pa.string()),
        ("digest", pa.string()),
        ("sources", pa.list_(pa.string())),
        ("there", pa.bool_()),
        ("confirmed_by", pa.string()),
        ("undrawn", pa.list_(pa.string())),
        ("value", pa.float64()),
        ("raw", pa.float64()),
        ("said", pa.string()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A picture of a test or a gallery, read back. context: the number of the effect or failures that it belongs to. data:
    WebP."""

    context: int
    pair: int
    role: str
    prompt: str
    there: bool | None
    undrawn: tuple[str, ...]
    value: float
    raw: float | None
    said: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """Of one investigation. name: of its class. effects: none where nothing was claimed."""

    owed: Owed
    name: str
    effects: tuple[Effect, ...]
    shown: tuple[Shown, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """found: as Failures, without the pictures."""

    owed: Owed
    name: str
    found: tuple[Mapping[str, Any], ...]
    shown: tuple[Shown, ...]


def dump_test(owed: Owed, name: str, tested: Sequence[tuple[Effect, Sequence[Pair]]]) -> bytes:
    rows = [
        _row(side, at, number, role)
        for at, (_, pairs) in enumerate(tested)
        for number, pair in enumerate(pairs)
        for role, side in (("with", pair.having), ("without", pair.without))
    ]
    return tables.dump(rows, _PICTURES, _header(owed, name) | {"effects": [asdict(one) for one, _ in tested]})


def read_test(data: bytes, *, light: bool = False) -> Examined:
    """light: without pictures. Raises StoreError for what is no test of a bias."""
    rows, header = _read(data, light)
    try:
        return Examined(
            owed=_owed(header),
            name=header["name"],
            effects=tuple(_effect(one) for one in header["effects"]),
            shown=() if light else tuple(_shown(row) for row in rows),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"a test of a bias that lacks something: {error!r}") from error


def dump_gallery(owed: Owed, name: str, found: Sequence[Failures]) -> bytes:
    rows = [
        _row(one.side, at, number, part.prone, one.said)
        for at, part in enumerate(found)
        for number, one in enumerate(part.wrong)
    ]
    parts = [
        {"context": asdict(one.context)}
        | {key: getattr(one, key) for key in ("kind", "prone", "rate", "base", "n")}
        | {"wrong": len(one.wrong)}
        for one in found
    ]
    return tables.dump(rows, _PICTURES, _header(owed, name) | {"found": parts})


def read_gallery(data: bytes) -> Gallery:
    """Raises StoreError for what is no gallery."""
    rows, header = _read(data, False)
    try:
        return Gallery(
            owed=_owed(header),
            name=header["name"],
            found=tuple(header["found"]),
            shown=tuple(_shown(row) for row in rows),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"failure modes that lack something: {error!r}") from error


def plain(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON has it, intervals as [mean, low, high]."""
    one = verdict.effect
    return {
        "unit": str(verdict.owed.unit),
        "replicate": verdict.owed.replicate,
        "class": verdict.name,
        "context": one.context.label,
        "outcome": one.outcome,
        "cause": one.cause,
        "effect": one.score.as_list() if one.score else None,
        "effect_on_logit": one.raw.as_list() if one.raw else None,
        "p": one.p,
        "p_adjusted": verdict.adjusted,
        "pairs": list(one.pairs),
        "objects": one.objects,
        "confirmed_by": list(one.confirmed_by),
        "supported": verdict.supported,
    }


def _row(side: Side, context: int, pair: int, role: str, said: str = "") -> tables.Row:
    return {
        "context": context,
        "pair": pair,
        "role": role,
        "prompt": side.prompt,
        "digest": side.picture.digest,
        "sources": list(side.picture.sources),
        "there": side.there,
        "confirmed_by": side.confirmed_by,
        "undrawn": list(side.undrawn),
        "value": side.value,
        "raw": side.raw,
        "said": said,
        "data": side.picture.webp(),
    }


def _header(owed: Owed, name: str) -> dict[str, Any]:
    return {"version": VERSION, "unit": asdict(owed.unit), "replicate": owed.replicate, "name": name}


def _read(data: bytes, light: bool) -> tuple[list[tables.Row], tables.Row]:
    rows, header = tables.load(data, "a test of a bias", ["context"] if light else None)
    if header.get("version") != VERSION:
        raise StoreError(
            f"a test of a bias of version {header.get('version')}; this OpenMAIA reads version {VERSION}: remove the run's "
            f"folders {TESTS}/ and {FAILURES}/ to have them made again"
        )
    return rows, header


def _owed(header: tables.Row) -> Owed:
    return Owed(unit=Unit(**header["unit"]), replicate=header["replicate"])


def _effect(values: dict[str, Any]) -> Effect:
    def interval(one: dict[str, float] | None) -> Interval | None:
        return None if one is None else Interval(**one)

    typed: dict[str, Any] = {
        "context": Context(**values["context"]),
        "score": interval(values["score"]),
        "raw": interval(values["raw"]),
        "pairs": (values["pairs"][0], values["pairs"][1]),
        "confirmed_by": tuple(values["confirmed_by"]),
    }
    return Effect(**values | typed)


def _shown(row: tables.Row) -> Shown:
    wanted = {key: row[key] for key in ("context", "pair", "role", "prompt", "there", "value", "raw", "said", "data")}
    return Shown(**wanted, undrawn=tuple(row["undrawn"]))
