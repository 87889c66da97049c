"""A run directory of any size, made from the records of a real run: `openmaia view` reads it like any other."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.summary import EVALUATION_FILE as POOLED
from openmaia.evaluation.storage import compute_stamp
from openmaia.runs import tables
from openmaia.runs.parquet import write_record
from openmaia.runs.results import EVALUATION, SIGNIFICANCE
from openmaia.runs.run import InvestigationId, Run

FIRST = 1_000_000
"""The first index. All indices have the same number of digits, so that a file is its pattern with other digits."""

Pattern = tuple[bytes, bytes, dict[str, Any]]
"""A record, an evaluation (empty without one) and the p-values of the description."""


def large_run(real: Run, count: int, layers: int, folder: Path) -> Run:
    """Makes a run of many investigations from those of a real one.

    The footers of records and evaluations, which hold all that the first page shows, are those of the real run. The rest is
    left out, because 100,000 whole records take 300 GB: turns have no calls and no images, evaluations no rows.
    """
    config = load(["name=large", "units=all", "target.name=net", f"paths.runs={folder}"])
    made, patterns = Run.create(config), list(_patterns(real, layers))
    units = [Unit(target="net", layer=f"layer{n * layers // count}", index=FIRST + n) for n in range(count)]
    made.set_plan(units, 1)
    rows: list[dict[str, Any]] = []
    for number, unit in enumerate(units):
        record, evaluation, p_values = patterns[number % len(patterns)][unit.layer]
        investigation = InvestigationId(unit=unit, replicate=0)
        for name, data in (("records", record), (EVALUATION, evaluation)):
            path = Path(made.files.path(f"{name}/{investigation.path}.parquet"))
            path.parent.mkdir(parents=True, exist_ok=True)
            if data:
                path.write_bytes(data.replace(str(FIRST).encode(), str(unit.index).encode()))
        if p_values:
            rows.append({"target": unit.target, "layer": unit.layer, "index": unit.index, "replicate": 0} | p_values)
    made.files.write(SIGNIFICANCE, tables.dump(rows, None, {"stamp": "", "supported": {}}))
    pooled: dict[str, Any] = real.files.read_json(POOLED) or {}  # pyright: ignore[reportAssignmentType]
    stamp = compute_stamp(made, config.evaluate.bootstrap)
    made.files.write(POOLED, json.dumps(pooled | {"stamp": stamp}).encode())
    return made


def _patterns(real: Run, layers: int) -> Iterator[dict[str, Pattern]]:
    """Yields for each record of a run its pattern by the name of the layer."""
    p_values = real.significance()
    for investigation in sorted(real.done()):
        record, evaluation = real.record(investigation), real.artifact(EVALUATION, investigation)
        turns = tuple(replace(turn, calls=(), observation=(), images={}) for turn in record.turns)
        header = tables.load(evaluation)[1] if evaluation else {}
        found: dict[str, Pattern] = {}
        for layer in (f"layer{n}" for n in range(layers)):
            unit = Unit(target="net", layer=layer, index=FIRST)
            stored = write_record(replace(record, unit=unit, turns=turns, confirmation=None))
            found[layer] = stored, tables.dump([], None, header) if header else b"", p_values.get(investigation, {})
        yield found
