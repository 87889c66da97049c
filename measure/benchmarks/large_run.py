"""A run directory of any size, made from the records of a real run: `openmaia view` reads it like any other."""

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.summary import EVALUATION_FILE as POOLED
from openmaia.evaluation.storage import compute_stamp
from openmaia.runs import tables
from openmaia.runs.parquet import check_record, write_record
from openmaia.runs.results import EVALUATION, SIGNIFICANCE, SIGNIFICANCE_SCHEMA, basis, fingerprint
from openmaia.runs.run import InvestigationId, Run

FIRST = 1_000_000
"""The first index. All indices have the same number of digits, so that a file is its pattern with other digits."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The files of one investigation of the unit FIRST, and what is derived from them."""

    record: bytes
    row: dict[str, Any]
    """The summary of the record."""
    evaluation: bytes
    """Empty without one."""
    header: dict[str, Any]
    """Of the evaluation."""
    p_values: dict[str, Any]


def large_run(real: Run, count: int, layers: int, folder: Path) -> Run:
    """Makes a run of many investigations from those of a real one.

    The footers of records and evaluations, which hold all that the first page shows, are those of the real run. The rest is
    left out, because 100,000 whole records take 300 GB: turns have no calls and no images, evaluations no rows.
    """
    config = load(["name=large", "units=all", "target.name=net", f"paths.runs={folder}"])
    made = Run.create(config)
    identity, investigations = made.identity(), sorted(real.done())
    p_values = {each: values for (each, _), values in real.significance().items()}
    units = [Unit(target="net", layer=f"layer{n * layers // count}", index=FIRST + n) for n in range(count)]
    made.set_plan(units, 1)

    @lru_cache(maxsize=len(investigations))
    def pattern(of: InvestigationId, layer: str) -> _Pattern:
        return _pattern(real, of, Unit(target="net", layer=layer, index=FIRST), identity, p_values.get(of, {}))

    rows: list[dict[str, Any]] = []
    for number, unit in enumerate(units):
        one = pattern(investigations[number % len(investigations)], unit.layer)
        investigation, row = InvestigationId(unit=unit, replicate=0), one.row | {"index": unit.index}
        digits = str(FIRST).encode(), str(unit.index).encode()
        _write(made, f"records/{investigation.path}.parquet", one.record.replace(*digits))
        if one.evaluation:
            bound, claim = basis(row, identity), one.header["claim"]
            data = one.evaluation.replace(claim["basis"].encode(), bound.encode()).replace(*digits)
            _write(made, f"{EVALUATION}/{investigation.path}.parquet", data)
            header = one.header | {"claim": claim | {"unit": asdict(unit), "basis": bound}}
            place = {key: row[key] for key in ("target", "layer", "index", "replicate")}
            rows += [place | one.p_values | {"evaluation": fingerprint(header)}] if one.p_values else []
    made.files.write(SIGNIFICANCE, tables.dump(rows, SIGNIFICANCE_SCHEMA, {"stamp": "", "supported": {}}))
    pooled: dict[str, Any] = real.files.read_json(POOLED) or {}  # pyright: ignore[reportAssignmentType]
    stamp = compute_stamp(made, config.evaluate.bootstrap)
    made.files.write(POOLED, json.dumps(pooled | {"stamp": stamp}).encode())
    return made


def _pattern(real: Run, of: InvestigationId, unit: Unit, identity: str, p_values: dict[str, Any]) -> _Pattern:
    record, evaluation = real.record(of), real.artifact(EVALUATION, of)
    turns = tuple(replace(turn, calls=(), observation=(), images={}) for turn in record.turns)
    stored = write_record(replace(record, unit=unit, replicate=0, turns=turns, confirmation=None))
    row = check_record(tables.load(stored)[1], InvestigationId(unit=unit, replicate=0))
    header = tables.load(evaluation)[1] if evaluation else {}
    if header:
        answer = {key: row[key] for key in ("description", "labels", "replicate")}
        header["claim"] |= answer | {"unit": asdict(unit), "basis": basis(row, identity)}
    return _Pattern(stored, row, tables.dump([], None, header) if header else b"", header, p_values)


def _write(run: Run, name: str, data: bytes) -> None:
    # Not by `Files.write`, whose fsync takes longer than all the rest.
    path = Path(run.files.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
