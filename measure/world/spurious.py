"""A network with a planted shortcut in the recipe for spurious features: which units of its last stage the agent finds spurious, and
whether a classifier without them does better, beside the network without a shortcut. Writes spurious.csv, a row per unit.
"""

import csv
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from measure.world.hidden import folder, study
from measure.world.training.shortcut import NETWORKS
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY

CONFIG = "configs/spurious-scenes.yaml"
CSV = REPOSITORY / "measure/world/spurious.csv"
SEED = 0
FEW = ("spurious.units=4", "spurious.draws=5", "spurious.trials=1")

Row = Mapping[str, Any]


def measure(smoke: bool) -> dict[str, Any]:
    names = {network: studied(network, smoke) for network in NETWORKS}
    units = {network: judged(name) for network, name in names.items()}
    if not smoke:
        write_units(units)
    return {network: summarised(name, units[network]) for network, name in names.items()}


def studied(network: str, smoke: bool) -> str:
    """Conducts the study, or continues it, and returns its name."""
    name = f"spurious-{network}{'-few' if smoke else ''}"
    study("spurious", CONFIG, name, network, *(FEW if smoke else ()))
    return name


def judged(name: str) -> list[Row]:
    """Returns a row for each unit that l1 chose: what agent and factorial probe find, and the agent's reasons."""
    kept: dict[str, list[int]] = _read(name, f"seed-{SEED}/verdicts.json")
    selective: list[int] = _read(name, f"seed-{SEED}/probe.json")["result"]
    run = Run.open(str(folder() / name / f"seed-{SEED}" / "judging"))
    reasons = {each.unit.index: each.description for each in run.records(sorted(run.done()))}
    return [
        {"unit": unit, "agent": verdict, "probe": "selective" if unit in selective else "spurious",
         "reasons": reasons.get(unit, "")}
        for verdict, units in kept.items() for unit in units
    ]  # fmt: skip


def summarised(name: str, units: list[Row]) -> dict[str, Any]:
    return {
        "units": len(units),
        "agent": dict(Counter(each["agent"] for each in units)),
        "probe": dict(Counter(each["probe"] for each in units)),
        "agree": sum(each["agent"] == each["probe"] for each in units),
        "rows": {
            row["name"]: {"units": row["units"], "accuracy": row["accuracy"]["mean"], "spread": row["spread"]}
            for row in _read(name, "table.json")["rows"]
            if row["accuracy"]
        },
    }


def write_units(units: Mapping[str, list[Row]]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(("network", "unit", "agent", "probe", "reasons"))
        for network, rows in units.items():
            for row in sorted(rows, key=lambda each: each["unit"]):
                table.writerow((network, *(row[key] for key in ("unit", "agent", "probe", "reasons"))))


def _read(name: str, path: str) -> Any:
    return json.loads((folder() / name / path).read_text())
