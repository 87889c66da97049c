"""Measures the packaged networks on fresh scenes: `python -m measure.world.training.accuracy FOLDER`. Writes accuracy.csv.

Reads the set `fresh` that `drawing` has written to the folder.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import torch

from measure.measuring import machine
from measure.world.training.train import ANSWERS, scenes
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.offline.networks.packaged import WEIGHTS, load_network, packaged

LAYERS = {
    "residual": ("stage1", "stage2", "stage3", "stage4"),
    "transformer": tuple(f"blocks.{n}.hidden" for n in range(4)),
}
"""Layers whose units have activations of at least about 0, by architecture."""

CSV = Path(__file__).with_name("accuracy.csv")


def measure(name: str, folder: Path) -> dict[str, str | int]:
    """Returns a row of the table."""
    module, _ = load_network(WEIGHTS / f"{name}.safetensors")
    layers = LAYERS["transformer" if name.endswith("vit") else "residual"]
    peaks = {layer: torch.empty(0) for layer in layers}
    hooks = [module.get_submodule(each).register_forward_hook(_keep(peaks, each)) for each in layers]
    count, batch = scenes("fresh", folder)
    right: dict[str, list[bool]] = {question: [] for question in ANSWERS}
    for numbers in torch.arange(count).split(100):
        inputs, known = batch(numbers)
        with torch.inference_mode():
            logits = module.answers(inputs)  # pyright: ignore[reportCallIssue]
        for question, each in known.items():
            right[question] += (logits[question].argmax(1) == each)[each >= 0].tolist()
    for hook in hooks:
        hook.remove()
    silent = {layer: int((each.amax(0) <= 0).sum()) for layer, each in peaks.items()}
    info = NetworkTarget(name, packaged(name), layers).info()
    return {
        "network": name,
        "digest": info.digest[:12],
        "parameters": sum(each.numel() for each in module.parameters()),
        "bytes": (WEIGHTS / f"{name}.safetensors").stat().st_size,
        **{f"{question}_accuracy": f"{np.mean(each):.4f}" for question, each in right.items()},
        **{f"{question}_scenes": len(each) for question, each in right.items()},
        "never_active": " ".join(f"{layer}:{each}/{peaks[layer].shape[1]}" for layer, each in silent.items()),
    }


def _keep(peaks: dict[str, torch.Tensor], layer: str):
    def hook(_module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> None:
        maxima = output.amax((2, 3)) if output.ndim == 4 else output.amax(1)
        peaks[layer] = torch.cat([peaks[layer], maxima.amax(0, keepdim=True)])

    return hook


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = [measure(each.stem, Path(sys.argv[1])) for each in sorted(WEIGHTS.glob("scenes_*.safetensors"))]
    with CSV.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(machine(), *rows, sep="\n")
