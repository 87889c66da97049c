"""The summary table: one row per finished investigation, derived from its record and its evaluation."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import pyarrow as pa

from openmaia.config.machine import POOLS
from openmaia.runs.records import Record, dumps
from openmaia.runs.tables import TableRow

_COST = {"requests": pa.int64(), "seconds": pa.float64(), "gpu_seconds": pa.float64()}
_SCORES = (
    "positive neutral auc auc_other auc_worst auc_unrelated auc_random auc_against auc_words difference z_difference d "
    "mad clarity rank top1 top5 shown p q worst_auc worst_low worst_high"
).split()

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
        *((name, pa.string()) for name in ("outcome", "verdict", "verdict_reason", "worst_control")),
        *((name, pa.float64()) for name in _SCORES),
    ]
)
"""Columns of summary.parquet, a table with a row for each finished investigation. The columns after `confirm_auc` are
null until the run is evaluated."""

_KINDS = {
    **dict.fromkeys("target layer stop cause description backbone sandbox evidence".split(), str),
    **dict.fromkeys("index replicate turns messages experiments tracebacks sent_back".split(), int),
    **dict.fromkeys("tokens prompt_tokens cached_tokens generated_tokens".split(), int),
    "seconds": int | float,
    "converged": int | None,
    "confirm_auc": int | float | None,
    "labels": list,
    "tools": dict,
    "spent": dict,
}
"""Keys of the result of `summary` as JSON, with their types."""

_SCORE_KINDS = {
    **dict.fromkeys("outcome cause protocol writer generator method standard".split(), str),
    **dict.fromkeys("others n verified_by".split(), list),
    **dict.fromkeys("auc_by_label controls".split(), dict),
    "detection": (dict, type(None)),
    **dict.fromkeys(("failed_images", "units"), int),
    "worst_label": str | None,
    **dict.fromkeys(
        "overlap_exact overlap_words positive neutral shown auc difference d z_positive z_neutral z_difference auc_worst "
        "auc_unrelated auc_random mad clarity rank top1 top5 chance auc_other auc_words auc_against".split(),
        int | float | None,
    ),
}
"""The scores of every evaluation (`openmaia.evaluation.scores.Evaluation.values`), with their types."""

_ITEM_KINDS = {
    "others": int,
    "verified_by": str,
    "auc_by_label": int | float | None,
    "detection": int | float | str | None,
    "controls": dict,
}
"""Types of the items of those scores that are lists or dicts."""

_CONTROL_KINDS = {**dict.fromkeys("auc low high".split(), int | float), **dict.fromkeys("n prompts".split(), list)}
"""Keys of each item of `controls`, with their types."""


def summary(record: Record) -> TableRow:
    """Returns the answer of an investigation, how it ended, and counts and costs over its turns, as a dict.

    `write_record` also stores this summary in the header of the record's file, where it can be read without the turns.

    Returns:
        `turns`: the number of turns. `experiments`, `tracebacks`: the number of turns with code, and of those whose
        code raised an exception. `prompt_tokens`, `cached_tokens`, `generated_tokens`: sums over the turns. `tools`:
        `Record.tool_calls`. `sent_back`, `evidence`: `Evidence.sent_back` and `Evidence.state`. `confirm_auc`:
        `Confirmation.auc` over all labels, None if there is none. The other keys are fields and properties of `Record`
        or, for `target`, `layer` and `index`, of `Unit`.
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
    }


def wrong_key(row: TableRow) -> str | None:
    """Checks that a dict has the keys and the types of a result of `summary`.

    Returns:
        The first key that is missing or whose value has a wrong type. None if there is no such key.
    """
    if (key := _wrong_kind(row, _KINDS)) is not None:
        return key
    if not all(isinstance(label, str) for label in row["labels"]):
        return "labels"
    if not all(isinstance(count, int) for count in row["tools"].values()):
        return "tools"
    for usage in row["spent"].values():
        costs = cast(TableRow, usage) if isinstance(usage, dict) else {}
        if costs.keys() != _COST.keys() or not all(isinstance(cost, int | float) for cost in costs.values()):
            return "spent"
    return None


def wrong_score(scores: dict[str, Any]) -> str | None:
    """Checks that a dict has the keys and the types of the scores in an evaluation.

    Returns:
        The first key that is missing or whose value, or an item of it, has a wrong type. None if there is no such key.
    """
    if (key := _wrong_kind({"units": 0} | scores, _SCORE_KINDS)) is not None:  # only tested descriptions have `units`
        return key
    for key, kind in _ITEM_KINDS.items():
        items = scores[key].values() if isinstance(scores[key], dict) else scores[key] or ()
        if not all(isinstance(item, kind) for item in items):
            return key
    if not _is_pair(scores["n"]):
        return "n"
    for control in scores["controls"].values():
        if _wrong_kind(control, _CONTROL_KINDS) or not (_is_pair(control["n"]) and _is_pair(control["prompts"])):
            return "controls"
    return None


def _is_pair(counts: list[Any]) -> bool:
    """Returns whether a list holds the two numbers of positive and of control images, or of their prompts."""
    return len(counts) == 2 and all(isinstance(count, int) for count in counts)


def _wrong_kind(values: TableRow, kinds: Mapping[str, Any]) -> str | None:
    return next((key for key in kinds if key not in values or not isinstance(values[key], kinds[key])), None)


def table_row(row: TableRow, scores: dict[str, Any] | None) -> TableRow:
    """Returns the row of an investigation in summary.parquet.

    Args:
        row: The result of `summary`.
        scores: The scores in the investigation's evaluation, or None if it is not evaluated yet.
    """
    costs = {f"{service}_{cost}": row["spent"].get(service, {}).get(cost, 0) for service in POOLS for cost in _COST}
    return row | {"tools": dumps(row["tools"])} | costs | (scores or {})
