"""A network with a planted shortcut: what the scripted agent claims of its biases by `openmaia study bias`, and what the test
supports, beside the same classes of the network without a shortcut. Writes shortcuts.csv, a row per claim or class without one.

The classes were fixed before they were measured: the planted one, and five controls.
"""

import csv
import json
from collections.abc import Mapping
from typing import Any

from measure.world.hidden import folder, study
from measure.world.training.drawing import SHORTCUT
from measure.world.training.shortcut import NETWORKS
from openmaia.offline.searcher.contexts import named
from openmaia.recipes.bias.study import VERDICTS, classes_without_claim
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY

CONFIG = "configs/bias-scenes.yaml"
CONTEXT = "dusk"
CSV = REPOSITORY / "measure/world/shortcuts.csv"

Row = Mapping[str, Any]


def measure(smoke: bool) -> dict[str, Any]:
    rows = {name: claims(investigated(name, smoke)) for name in NETWORKS}
    if not smoke:
        write_claims(rows)
    return {name: summarised(found) for name, found in rows.items()}


def investigated(name: str, smoke: bool) -> Run:
    directory = f"shortcut-{name}{'-few' if smoke else ''}"
    study("bias", CONFIG, directory, name, *([f"units=output={SHORTCUT}"] if smoke else []))
    return Run.open(str(folder() / directory))


def claims(run: Run) -> list[Row]:
    """Returns a row for each claim of a run, and one for each class without any."""
    verdicts: list[dict[str, Any]] = json.loads(run.files.read(VERDICTS) or b"[]")
    rows: list[Row] = [
        {key: each[key] for key in ("class", "context", "supported", "effect", "effect_on_logit", "p_adjusted")}
        for each in verdicts
    ]
    return [*rows, *({"class": name, "context": "", "supported": False} for name in classes_without_claim(run))]


def summarised(rows: list[Row]) -> dict[str, Any]:
    of_class = [row for row in rows if row["class"] == SHORTCUT]
    others = [row for row in rows if row["class"] != SHORTCUT]
    return {
        "planted": [_short(row) for row in of_class if row["context"]],
        "controls": len({row["class"] for row in others}),
        "control_claims": [_short(row) for row in others if row["context"]],
        "controls_with_dusk": sum(CONTEXT in named(row["context"]) for row in others if row["context"]),
    }


def _short(row: Row) -> dict[str, Any]:
    return {
        key: [round(each, 4) for each in value] if isinstance(value, list) else value
        for key, value in row.items()
        if key != "p_adjusted"
    }


def write_claims(rows: Mapping[str, list[Row]]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("network class context supported effect low high logit p_adjusted".split())
        for network, found in rows.items():
            for row in sorted(found, key=lambda each: (each["class"] != SHORTCUT, each["class"])):
                effect, logit = row.get("effect") or [None] * 3, row.get("effect_on_logit") or [None]
                numbers = (*effect, logit[0], row.get("p_adjusted"))
                table.writerow([
                    network, row["class"], row["context"], int(row["supported"]),
                    *("" if value is None else f"{value:.4g}" for value in numbers),
                ])  # fmt: skip
