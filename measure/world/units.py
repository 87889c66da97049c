"""Units over scene graphs, of the half that is only for measurements: what the scripted agent finds of a truth that has words,
and whether it keeps silent about one that has none. Writes units.csv, a row per unit.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure.science import setting
from measure.science.real import command
from measure.world.hidden import CONFIG, folder, verdicts
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict
from openmaia.evaluation.truth import TruthMatch, read_truth
from openmaia.offline.scene_units.family import share
from openmaia.offline.scenes.album import LIGHTS
from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import PLACES
from openmaia.runs.run import Run

SEED, EACH = 21, 40
"""Of the target, and the largest number of units of each layer."""
OUTSIDE = "outside"
"""The layer whose units have a truth for which the grammar has no words, or that the agent's vocabulary lacks."""
WITHOUT = sorted({*kinds(), *COLOURS, *PLACES} - {*LIGHTS, "sky"}, key=lambda each: share("without", each))[:10]
"""Words that the agent's vocabulary lacks, by a hash."""
CSV = Path(__file__).with_name("units.csv")


def measure(smoke: bool) -> dict[str, Any]:
    run = investigated(smoke)
    matches = {each.unit: each for each in read_truth(run)}
    found = verdicts(run)
    layers = sorted({unit.layer for unit in found})
    figures: dict[str, Any] = {
        layer: of_layer({unit: each for unit, each in found.items() if unit.layer == layer}, matches)
        for layer in layers
    }
    inside = {unit: each for unit, each in found.items() if unit.layer != OUTSIDE}
    figures["inside the words"] = of_layer(inside, matches)
    if not smoke:
        write_units(found, matches)
    return figures


def investigated(smoke: bool) -> Run:
    directory = f"units-{SEED}{'-few' if smoke else ''}"
    command(
        "run", CONFIG, f"name={directory}", f"paths.runs={folder()}", f"paths.cache={setting.CACHE}", "units=all",
        "target.kind=scene_units", "target.name=scene_units", "target.half=held_out", f"target.seed={SEED}",
        f"target.count={2 if smoke else EACH}", f"target.without={WITHOUT}", f"generator.without={WITHOUT}",
    )  # fmt: skip
    return Run.open(str(folder() / directory))


def of_layer(found: Mapping[Unit, UnitVerdict], matches: Mapping[Unit, TruthMatch]) -> dict[str, Any]:
    supported = {unit: each.verdict is Verdict.SUPPORTED for unit, each in found.items()}
    exact = {unit: unit in matches and matches[unit].exact for unit in found}
    return {
        "units": len(found),
        "exact": proportion([exact[unit] for unit in found]),
        "exact_and_supported": proportion([exact[unit] and supported[unit] for unit in found]),
        "not_exact_but_supported": sum(supported[unit] and not exact[unit] for unit in found),
        "abstained_or_not_supported": proportion([not supported[unit] for unit in found]),
        "abstained": sum(each.verdict is Verdict.ABSTAINED for each in found.values()),
    }


def write_units(found: Mapping[Unit, UnitVerdict], matches: Mapping[Unit, TruthMatch]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("layer unit verdict exact q truth labels".split())
        for unit, verdict in sorted(found.items()):
            match = matches.get(unit)
            table.writerow([
                unit.layer, unit.index, verdict.verdict.value, int(bool(match and match.exact)),
                "" if verdict.q is None else f"{verdict.q:.4g}", "; ".join(match.truth) if match else "",
                "; ".join(match.labels) if match else "",
            ])  # fmt: skip
