"""Features of sparse autoencoders of a layer of EfficientNet-Lite0: a TopK and a JumpReLU one are trained on its outputs, and
12 features of each are investigated by the scripted experimenter and tested. Writes features.csv, a row per feature.

    python -m measure.science only=features
    python -m measure.science.features train      the autoencoders alone
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any, get_args

import torch

import openmaia
from measure.science import setting
from measure.science.autoencoder import Kind, train
from measure.science.real import CONFIG, command
from openmaia.assembly import exemplars
from openmaia.exemplars.passes import run_batches

LAYER, FEATURES, ACTIVE = "_blocks.10", 512, 16
"""112 channels at 14 x 14 positions."""

STEPS, UNITS = 1000, 12
CSV = Path(__file__).with_name("features.csv")
COLUMNS = ("index", "stop", "description", "auc", "auc_other", "verdict")


def measure(smoke: bool) -> dict[str, Any]:
    found = trained(smoke)
    rows = [{"kind": kind, **row} for kind in get_args(Kind) for row in investigated(kind, smoke)]
    if not smoke:
        with CSV.open("w", newline="") as out:
            table = csv.writer(out)
            table.writerow(("kind", *COLUMNS))
            table.writerows([row[name] for name in ("kind", *COLUMNS)] for row in rows)
    return {
        kind: found[kind] | {
            "units": len(own),
            "described": sum(bool(row["description"]) for row in own),
            "supported": sum(row["verdict"] == "supported" for row in own),
            "auc": mean_of(own, "auc"),
            "auc_other": mean_of(own, "auc_other"),
        }
        for kind in get_args(Kind)
        for own in [[row for row in rows if row["kind"] == kind]]
    }  # fmt: skip


def mean_of(rows: list[dict[str, Any]], name: str) -> float | None:
    """Over those that were tested."""
    found = [row[name] for row in rows if row[name] is not None and row[name] == row[name]]
    return sum(found) / len(found) if found else None


def folder(kind: str, smoke: bool) -> Path:
    return setting.CACHE / "science" / "autoencoders" / f"{LAYER}-{kind}{'-few' if smoke else ''}"


def trained(smoke: bool) -> dict[str, dict[str, float]]:
    """Trains what is not there yet, and returns how well each reconstructs."""
    positions: list[torch.Tensor] = []
    for kind in get_args(Kind):
        figures = folder(kind, smoke) / "figures.json"
        if not figures.exists():
            positions = positions or [outputs(smoke)]
            steps, features = (20, 64) if smoke else (STEPS, FEATURES)
            found = train(kind, positions[0], features, ACTIVE, steps, folder(kind, smoke), LAYER)
            figures.write_text(json.dumps({**found, "positions": len(positions[0])}) + "\n")
    return {kind: json.loads((folder(kind, smoke) / "figures.json").read_text()) for kind in get_args(Kind)}


def outputs(smoke: bool) -> torch.Tensor:
    """The channels of the layer at all positions of the images of exemplars, shape (positions, channels)."""
    worker = exemplars.worker(setting.config(CONFIG, (f"target.layers=[{LAYER}]", "exemplars.dataset=autoencoder")))
    numbers = range(min(worker.count(), 4 if smoke else worker.count()))
    found: list[torch.Tensor] = []
    for _, responses in run_batches(worker._reader, worker._loader.load(numbers)):
        values = responses[LAYER]
        assert isinstance(values, torch.Tensor)
        found.append(values.flatten(2).mT.flatten(0, 1))
    return torch.cat(found)


def investigated(kind: str, smoke: bool) -> list[dict[str, Any]]:
    """Runs the investigations and their tests, or continues them."""
    run = setting.CACHE / "science" / "runs" / f"features-{kind}{'-few' if smoke else ''}"
    command(
        "run", f"configs/{CONFIG}.yaml", f"name={run.name}", f"paths.runs={run.parent}", f"paths.cache={setting.CACHE}",
        *setting.few(smoke), "target.layers=[]", f"target.dictionaries={{{LAYER}: {folder(kind, smoke)}}}",
        f"units={LAYER}/features=random:{2 if smoke else UNITS}", f"exemplars.dataset={run.name}",
    )  # fmt: skip
    found = openmaia.load(run).units().sort_values("index")
    return [{name: row[name] for name in COLUMNS} for _, row in found.iterrows()]


if __name__ == "__main__":
    if sys.argv[1:] != ["train"]:
        sys.exit(__doc__)
    torch.set_num_threads(2)
    print(json.dumps(trained(smoke=False), indent=1))
