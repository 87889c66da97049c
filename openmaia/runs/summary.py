"""The summary table: one row per finished investigation."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from openmaia.config.machine import POOLS
from openmaia.core.services import ServiceUsage
from openmaia.core.typed import find_mistyped
from openmaia.runs.records import Record, Stop, dumps
from openmaia.runs.tables import TableRow

_COST = {"requests": pa.int64(), **dict.fromkeys(("seconds", "gpu_seconds", "dollars"), pa.float64())}

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("target", "layer")),
        *((name, pa.int64()) for name in ("index", "replicate")),
        *((name, pa.string()) for name in ("stop", "cause")),
        *((name, pa.int64()) for name in ("turns", "messages", "converged", "experiments", "tracebacks", "sent_back")),
        ("tools", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("description", pa.string()),
        ("seconds", pa.float64()),
        *((name, pa.int64()) for name in ("tokens", "prompt_tokens", "cached_tokens", "generated_tokens")),
        *((f"{service}_{cost}", kind) for service in POOLS for cost, kind in _COST.items()),
        *((name, pa.string()) for name in ("backbone", "sandbox", "evidence")),
        ("confirm_auc", pa.float64()),
    ]
)
"""Columns of summary.parquet, before those of an evaluated run."""

_KINDS: dict[str, Any] = {
    **dict.fromkeys("target layer stop cause description backbone sandbox evidence drawn".split(), str),
    **dict.fromkeys("index replicate turns messages experiments tracebacks sent_back".split(), int),
    **dict.fromkeys("tokens prompt_tokens cached_tokens generated_tokens".split(), int),
    "seconds": float,
    "stop": Stop,
    "converged": int | None,
    "confirm_auc": float | None,
    "labels": list[str],
    "tools": dict[str, int],
    "spent": dict[str, ServiceUsage],
}
"""Keys of the result of `summary` as JSON, with their types."""


def digest_prompts(prompts: Sequence[str]) -> str:
    """Returns a digest of the texts of `Record.drawn_prompts`."""
    return hashlib.sha256(dumps(list(prompts)).encode(errors="surrogatepass")).hexdigest()[:32]


def summary(record: Record) -> TableRow:
    """Returns the answer of an investigation, how it ended, and counts and costs. It is stored in the header of the
    record.

    `drawn` is the `digest_prompts` of the prompts that the agent used, which a test of its answer may not use.
    `confirm_auc` is `Confirmation.auc` over all labels. Other keys have the names of what they are made from, such as
    `Record.tool_calls`.
    """
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
        "experiments": sum(bool(turn.code) for turn in record.turns),
        "tracebacks": sum(turn.raised for turn in record.turns),
        "sent_back": record.evidence.sent_back,
        "tools": record.tool_calls,
        "labels": list(record.labels),
        "description": record.description,
        "seconds": round(record.seconds, 3),
        "tokens": record.tokens,
        "prompt_tokens": sum(turn.prompt_tokens for turn in record.turns),
        "cached_tokens": sum(turn.cached_tokens for turn in record.turns),
        "generated_tokens": sum(turn.generated_tokens for turn in record.turns),
        "spent": {service: asdict(usage) for service, usage in sorted(record.spent.items())},
        "backbone": record.backbone,
        "sandbox": record.sandbox,
        "evidence": record.evidence.state,
        "confirm_auc": record.confirmation.auc() if record.confirmation else None,
        "drawn": digest_prompts(record.drawn_prompts()),
    }


def wrong_key(row: TableRow) -> str | None:
    """Returns the first key that a result of `summary` lacks, or whose value has a wrong type; None if there is none."""
    return next((key for key in _KINDS if key not in row or find_mistyped(row[key], _KINDS[key]) is not None), None)


def table_row(row: TableRow, scores: dict[str, Any] | None) -> TableRow:
    """Returns a row of summary.parquet from a result of `summary`, and the scores if the investigation is evaluated."""
    costs = {f"{service}_{cost}": row["spent"].get(service, {}).get(cost, 0) for service in POOLS for cost in _COST}
    return row | {"tools": dumps(row["tools"])} | costs | (scores or {})
