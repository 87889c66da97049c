"""Class outputs of the network that learned drawn scenes, as units of known truth: a description is exact if its labels name
the class and nothing else. In training, a pattern was the class of scenes with a patterned background and of no other
(`measure.world.training.drawing`): the pattern's name and "PATTERN background" both name it. Writes classes.csv, a row per output.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure.science import setting
from measure.science.classes import list_unlike, supported_pairs
from measure.science.real import command
from measure.world.hidden import CONFIG, UNTRAINED, folder, is_shown, scores_of, verdicts
from openmaia.core.units import OUTPUT
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.verdict import Verdict
from openmaia.evaluation.claims import read_claims
from openmaia.evaluation.storage import StoredTrials
from openmaia.offline.networks import scenes_resnet
from openmaia.offline.scene_units.matching import relation
from openmaia.offline.scenes.words import PATTERNS
from openmaia.runs.run import Run

TRAINED = "trained"
RUNS: Mapping[str, tuple[str, ...]] = {
    TRAINED: (),
    UNTRAINED: ("target.weights=untrained", "exemplars.dataset=scenes-untrained"),
}
CSV = Path(__file__).with_name("classes.csv")


def measure(smoke: bool) -> dict[str, Any]:
    names = scenes_resnet().labels
    runs = {name: investigated(name, range(4) if smoke else range(len(names)), smoke) for name in RUNS}
    rows = {name: described(run, names) for name, run in runs.items()}
    figures: dict[str, Any] = {name: summarised(found) for name, found in rows.items()}
    figures[TRAINED]["wrong"] = wrong_names(runs[TRAINED])
    if not smoke:
        write_units(rows)
    return figures


def investigated(name: str, outputs: range, smoke: bool) -> Run:
    directory = f"classes-{name}{'-few' if smoke else ''}"
    command(
        "run", CONFIG, f"name={directory}", f"paths.runs={folder()}", f"paths.cache={setting.CACHE}",
        f"units={OUTPUT}={outputs.start}-{outputs.stop - 1}", *RUNS[name],
    )  # fmt: skip
    return Run.open(str(folder() / directory))


def described(run: Run, names: tuple[str, ...]) -> list[dict[str, Any]]:
    found, scores = verdicts(run), scores_of(run)
    return [
        {
            "unit": claim.unit.index,
            "class": names[claim.unit.index],
            "verdict": found[claim.unit].verdict.value,
            "exact": bool(claim.labels) and all(is_name(each, names[claim.unit.index]) for each in claim.labels),
            "shown": is_shown(scores.get(claim.unit, {})),
            "q": found[claim.unit].q,
            "labels": "; ".join(claim.labels),
        }
        for claim in sorted(read_claims(run), key=lambda each: each.unit)
    ]


def is_name(label: str, of: str) -> bool:
    """Returns whether a label names a class, and nothing else."""
    spelled = (of, f"{of} background") if of in PATTERNS else (of,)
    return any(relation(label, each) == "same" for each in spelled)


def summarised(rows: list[dict[str, Any]]) -> dict[str, Any]:
    supported = [row["verdict"] == Verdict.SUPPORTED for row in rows]
    return {
        "units": len(rows),
        "exact": proportion([row["exact"] for row in rows]),
        "supported": proportion(supported),
        "supported_exact": proportion([row["exact"] and is_so for row, is_so in zip(rows, supported, strict=True)]),
        "supported_wrong": sum(is_so and not row["exact"] for row, is_so in zip(rows, supported, strict=True)),
        "abstained": sum(row["verdict"] == Verdict.ABSTAINED for row in rows),
    }


def wrong_names(run: Run) -> dict[str, Any]:
    """Gives every unit the description of every other one that shares no label with its own, and counts those that are
    supported, by the rule for its own."""
    claims = [trial.claim for trial in StoredTrials(run) if trial.outcome == "tested"]
    pairs = list_unlike({claim.unit: claim.statements for claim in claims})
    supported = supported_pairs(run, len(claims))
    return {"pairs": len(pairs), "supported": proportion([each in supported for each in pairs])}


def write_units(rows: Mapping[str, list[dict[str, Any]]]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.DictWriter(out, ["network", *rows[TRAINED][0]], lineterminator="\n")
        table.writeheader()
        for name, found in rows.items():
            for row in found:
                q = "" if row["q"] is None else f"{row['q']:.4g}"
                table.writerow({"network": name, **row, "exact": int(row["exact"]), "shown": int(row["shown"]), "q": q})
