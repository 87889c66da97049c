"""Exemplars of 16,384 features of one layer, beside what they cannot do without: the pass over the layer and the product with
the encoder.

`floor` runs the layer on each image and multiplies its output with the encoder, in the precision of `Dictionary`, and keeps
nothing. `first pass` is that of `openmaia exemplars`: it encodes, and keeps the statistics and the most and least exciting
images of all features. The two take turns, image by image the same, and the median of the ratios counts, because the machine
may do other things. Sparsity is set as training sets it: thresholds (or k) so that about 32 features are active at a position.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import save_file

from measure.benchmarks.exemplars import dataset, forget_peak, peak_mib
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.datasets.library import ImageDataset
from openmaia.exemplars.compute import ExemplarWorker
from openmaia.exemplars.loading import LoadedImage
from openmaia.exemplars.passes import FirstPass
from openmaia.exemplars.sparse import SparseResponses
from openmaia.models.targets.dictionary import Dictionary
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import load as load_network

LAYERS = ("_blocks.10", "_blocks.15", "_conv_head")
"""Of EfficientNet-Lite0: 112 channels at 14 x 14 positions, 320 and 1,280 at 7 x 7."""

FEATURES, ACTIVE = 16384, 32
IMAGES, ROUNDS, SCALED = 32, 5, 8
"""Images of a round, rounds, and images on which histogram scales and thresholds are measured."""

SMOKE = 256, 4, 2


def measure(smoke: bool) -> dict[str, Any]:
    features, images, rounds = SMOKE if smoke else (FEATURES, IMAGES, ROUNDS)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        dataset(root / "pictures", 2 * (images + SCALED))
        return {
            f"{layer}, {kind}": one(root, layer, kind, features, images, rounds)
            for layer in (LAYERS[:1] if smoke else LAYERS)
            for kind in ("topk", "jumprelu")
        }


def one(root: Path, layer: str, kind: str, features: int, images: int, rounds: int) -> dict[str, Any]:
    folder = root / f"{layer}-{kind}-{features}"
    given = config(root, layer, folder)
    plain = NetworkTarget("net", load_network("efficientnet_lite0", "", "weights"), [layer])
    worker = ExemplarWorker(given, plain, ImageDataset.open(root / "pictures"))
    shown = list(worker._loader.load(range(min(images + SCALED, worker.count()))))
    sample, shown = shown[:SCALED], shown[SCALED:]
    write_dictionary(folder, outputs(plain, layer, sample), kind, features)
    target = NetworkTarget(
        "net", load_network("efficientnet_lite0", "", "weights"), [], dictionaries={layer: str(folder)}
    )
    reader = ExemplarWorker(config(root, layer, folder, "features"), target, ImageDataset.open(root / "pictures"))
    name = f"{layer}/features"
    scales = reader.scales([name])
    dictionary = target._directions[name]
    assert isinstance(dictionary, Dictionary)
    first = FirstPass(target, worker._order, scales, given.exemplars.k)

    def floor() -> None:
        with torch.inference_mode():
            for image in shown:
                given_to = plain.responses([image.view], [""])[layer]
                assert isinstance(given_to, torch.Tensor)
                positions = given_to.flatten(2).mT.reshape(-1, given_to.shape[1])
                torch.addmm(dictionary.bias, positions.double(), dictionary.encoder.T)

    floor()  # the first time pays for memory
    first.take(shown)
    forget_peak()
    before = peak_mib()
    took = [(cpu(floor), cpu(lambda: first.take(shown))) for _ in range(rounds)]
    ratios = [whole / alone for alone, whole in took]
    peak = peak_mib()
    active = [float(len(found.at)) / found.count for found in (encoded(target, name, each) for each in shown)]
    found = first.summaries()[name]
    return {
        "features": features,
        "images of a round": len(shown),
        "first pass over the floor": median(ratios),
        "… smallest and largest of the rounds": [min(ratios), max(ratios)],
        "floor, CPU ms per image": 1000 * median(alone for alone, _ in took) / len(shown),
        "active features per position": sum(active) / len(active),
        "features never active": float((found.top[0][:, 0] == 0).sum()),
        "peak memory above the network's, MiB": peak - before,
        "statistics, MiB": (found.positions.nbytes + found.maxima.nbytes) / 2**20,
    }


def config(root: Path, layer: str, folder: Path, dataset_name: str = "layer") -> Config:
    return load([
        "name=x", "units=all", "target.kind=network", "target.name=net", "target.network=efficientnet_lite0",
        f"target.layers=[{layer}]", "pictures.kind=folder", f"pictures.folder={root / 'pictures'}",
        f"exemplars.folder={root / 'pictures'}", f"paths.exemplars={folder / 'exemplars'}",
        f"exemplars.dataset={dataset_name}",
    ])  # fmt: skip


def outputs(target: NetworkTarget, layer: str, images: list[LoadedImage]) -> torch.Tensor:
    """Channels at all positions, shape (positions, channels)."""
    found = [target.responses([image.view], [""])[layer] for image in images]
    return torch.cat([each.flatten(2).mT.flatten(0, 1) for each in found if isinstance(each, torch.Tensor)])


def write_dictionary(folder: Path, positions: torch.Tensor, kind: str, features: int) -> None:
    """A dictionary whose features are directions of differences between positions, in SAELens's form."""
    random = torch.Generator().manual_seed(0)
    pick = torch.randint(len(positions), (2, features), generator=random)
    directions = (
        positions[pick[0]] - positions[pick[1]] + 1e-3 * torch.randn(features, positions.shape[1], generator=random)
    )
    decoder = directions / directions.norm(dim=1, keepdim=True)
    middle = positions.mean(dim=0)
    values = (positions - middle) @ decoder.T
    tensors = {"W_enc": decoder.T, "W_dec": decoder, "b_enc": torch.zeros(features), "b_dec": middle}
    if kind == "jumprelu":
        rank = math.ceil(len(values) * ACTIVE / features)
        limit = values.topk(rank + 1, dim=0).values[rank]
        tensors["threshold"] = limit.clamp(min=0)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: each.contiguous() for name, each in tensors.items()}, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(
        json.dumps({"architecture": kind, "d_in": positions.shape[1], "d_sae": features, "k": ACTIVE})
    )


def encoded(target: NetworkTarget, name: str, image: LoadedImage) -> SparseResponses:
    found = target.responses([image.view], [""])[name]
    assert isinstance(found, SparseResponses)
    return found


def cpu(work: Callable[[], object]) -> float:
    """Seconds of this thread: those by the clock depend on what else the machine does."""
    began = time.thread_time()
    work()
    return time.thread_time() - began
