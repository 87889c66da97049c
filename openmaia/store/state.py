"""The state of a run as plain data, read from its directory alone."""

from typing import Any

from openmaia.store.run import Owed, Run
from openmaia.units import Unit


def state(run: Run) -> dict[str, Any]:
    """owed counts what is neither finished nor under way; failed units are owed again by the next command."""
    headers = {_key(row): row for row in run.headers()}
    plan, running, failures, scores = run.plan(), run.running(), run.failures(), run.scores()
    failed = {owed: cause for owed, cause in failures.items() if owed not in headers}
    waiting = [o for o in plan if o not in headers and o not in running and o not in failed]
    return {
        "name": run.name,
        "owed": len(waiting),
        "running": len(running),
        "done": len(headers),
        "failed": len(failed),
        "units": [_row(owed, headers.get(owed), owed in running, failed.get(owed), scores.get(owed)) for owed in plan],
    }


def _key(row: dict[str, Any]) -> Owed:
    unit = Unit(target=row["target"], layer=row["layer"], index=row["index"])
    return Owed(unit=unit, replicate=row["replicate"])


def _row(
    owed: Owed, header: dict[str, Any] | None, running: bool, cause: str | None, scores: dict[str, Any] | None
) -> dict[str, Any]:
    found, scored = header or {}, scores or {}
    stop = found.get("stop") or ("failed" if cause is not None else "running" if running else "owed")
    return {
        "target": owed.unit.target,
        "layer": owed.unit.layer,
        "index": owed.unit.index,
        "replicate": owed.replicate,
        "stop": stop,
        "cause": found.get("cause") or cause or "",
        "turns": found.get("turns"),
        "messages": found.get("messages"),
        "converged": found.get("converged"),
        "tools": found.get("tools", {}),
        "labels": found.get("labels", []),
        "description": found.get("description", ""),
        "positive": scored.get("positive"),
        "neutral": scored.get("neutral"),
        "auc": scored.get("auc"),
        "auc_other": scored.get("auc_other"),
        "outcome": scored.get("outcome"),
        "seconds": found.get("seconds"),
    }
