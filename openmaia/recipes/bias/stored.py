"""Stores tests of claimed biases, and failure modes, as Parquet with one row per image."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from openmaia.core.errors import StoreError
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.claims import Claim
from openmaia.recipes.bias.contexts import ClaimedContext
from openmaia.recipes.bias.effects import BiasVerdict, ContextEffect
from openmaia.recipes.bias.failures import FailureMode
from openmaia.recipes.bias.matched import MatchedPair, PairSide
from openmaia.runs import tables
from openmaia.runs.run import InvestigationId

_VERSION = 3
BIAS_TESTS, FAILURES, VERDICTS = "bias", "bias-failures", "bias.json"

_SCHEMA = pa.schema(
    [
        ("part", pa.int64()),
        ("role", pa.string()),
        ("prompt", pa.string()),
        ("sources", pa.list_(pa.string())),
        ("shows_class", pa.bool_()),
        ("missing_terms", pa.list_(pa.string())),
        ("value", pa.float64()),
        ("raw", pa.float64()),
        ("predicted", pa.string()),
        ("data", pa.binary()),
    ]
)


_HEADER: dict[str, Any] = {"claim": Claim, "name": str, "parts": list[dict[str, Any]]}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """See `PairSide` for the fields that have the same name there."""

    part: int
    """Index in `StoredTest.parts`."""
    role: str
    """"with" or "without"."""
    prompt: str
    sources: Sequence[str]
    """Digests of the dataset images whose pixels are in the image."""
    shows_class: bool | None
    missing_terms: Sequence[str]
    value: float
    raw: float | None
    predicted: str
    """Empty for images of tests."""
    data: bytes
    """Lossless WebP."""

    @property
    def is_sound(self) -> bool:
        """See `PairSide.is_sound`."""
        return self.shows_class is True and not self.missing_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTest:
    """The bias tests of one investigation, or its failure modes."""

    investigation: InvestigationId
    name: str
    """The class."""
    parts: tuple[Mapping[str, Any], ...]
    """The fields of each ContextEffect, or of each FailureMode without its images."""
    images: tuple[StoredImage, ...]

    @property
    def effects(self) -> tuple[ContextEffect, ...]:
        """Only of bias tests."""
        return tuple(map(_effect, self.parts))


def dump_test(claim: Claim, name: str, tested: Sequence[tuple[ContextEffect, Sequence[MatchedPair]]]) -> bytes:
    """Serialises the tests of the labels of a claim. The two images of a pair are adjacent rows."""
    rows = [
        _row(side, part, role)
        for part, (_, pairs) in enumerate(tested)
        for pair in pairs
        for role, side in (("with", pair.having), ("without", pair.without))
    ]
    return _dump(claim, name, [asdict(effect) for effect, _ in tested], rows)


def dump_failures(claim: Claim, name: str, modes: Sequence[FailureMode]) -> bytes:
    """Serialises the failure modes of one investigation, with one row for each misclassified image."""
    rows = [
        _row(wrong.side, part, mode.prone, wrong.predicted) for part, mode in enumerate(modes) for wrong in mode.wrong
    ]
    names = ("kind", "prone", "rate", "base", "n")
    parts = [{"context": asdict(mode.context)} | {key: getattr(mode, key) for key in names} for mode in modes]
    return _dump(claim, name, parts, rows)


def read_test(data: bytes, *, light: bool = False) -> StoredTest:
    """Reads a file of `dump_test` or `dump_failures`; with `light` without images. Raises StoreError if it is damaged
    or of another version.
    """
    rows, header = tables.load(data, "a test of a bias", ["part"] if light else None, _SCHEMA)
    if header.get("version") != _VERSION:
        raise StoreError(
            f"a test of a bias has version {header.get('version')}, and this OpenMAIA reads version {_VERSION}: remove the "
            f"folders {BIAS_TESTS}/ and {FAILURES}/ of the run to have them made again"
        )
    wrong = (key for key, hint in _HEADER.items() if key not in header or find_mistyped(header[key], hint) is not None)
    if (key := next(wrong, None)) is not None:
        raise StoreError(f"a test of a bias that lacks {key!r}, or has it with another type than OpenMAIA writes")
    try:
        return StoredTest(
            investigation=InvestigationId(unit=Unit(**header["claim"]["unit"]), replicate=header["claim"]["replicate"]),
            name=header["name"],
            parts=tuple(header["parts"]),
            images=() if light else tuple(StoredImage(**row) for row in rows),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"a test of a bias is incomplete: {error!r}") from error


def to_json(verdict: BiasVerdict) -> dict[str, Any]:
    """Converts a verdict to JSON values, with intervals as [mean, low, high]."""
    effect = verdict.effect
    return {
        "unit": str(verdict.investigation.unit),
        "replicate": verdict.investigation.replicate,
        "class": verdict.name,
        "context": effect.context.label,
        "outcome": effect.outcome,
        "cause": effect.cause,
        "effect": effect.score.as_list() if effect.score else None,
        "effect_on_logit": effect.raw.as_list() if effect.raw else None,
        "p": effect.p,
        "p_adjusted": verdict.adjusted,
        "pairs": list(effect.pairs),
        "objects": effect.objects,
        "confirmed_by": list(effect.confirmed_by),
        "supported": verdict.supported,
    }


def _row(side: PairSide, part: int, role: str, predicted: str = "") -> dict[str, Any]:
    same = {name: getattr(side, name) for name in ("prompt", "shows_class", "missing_terms", "value", "raw")}
    sources, data = side.image.sources, side.image.packed().data
    return asdict(StoredImage(part=part, role=role, sources=sources, predicted=predicted, data=data, **same))


def _dump(claim: Claim, name: str, parts: Sequence[Mapping[str, Any]], rows: Sequence[dict[str, Any]]) -> bytes:
    return tables.dump(rows, _SCHEMA, {"version": _VERSION, "claim": asdict(claim), "name": name, "parts": parts})


def _effect(values: Mapping[str, Any]) -> ContextEffect:
    typed: dict[str, Any] = {
        "context": ClaimedContext(**values["context"]),
        "pairs": (values["pairs"][0], values["pairs"][1]),
        "confirmed_by": tuple(values["confirmed_by"]),
    }
    typed |= {name: Interval(**values[name]) if values[name] else None for name in ("score", "raw")}
    return ContextEffect(**{**values, **typed})
