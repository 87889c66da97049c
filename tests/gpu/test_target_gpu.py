"""ResNet-152 in float32 on a GPU, with random weights: the same activations as on a CPU, whatever the batch, and speed.

The figures go to $OUT/target.json where OUT is set.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from openmaia.core.images import EncodedImage
from openmaia.core.services import Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import TargetNetwork, published

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.timeout(600),
]
LAYERS = ("layer3", "layer4", OUTPUT)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)


def network() -> TargetNetwork:
    """Its normalisation layers are fitted to such images: without that, the activations grow with every block."""
    torch.manual_seed(0)
    module, preprocess = torchvision.models.resnet152(), published((224, 224))
    for each in module.modules():
        if isinstance(each, torch.nn.BatchNorm2d):
            each.momentum = 1.0
    with torch.no_grad():
        module(torch.stack([preprocess.tensor(image.pixels) for image in images(8, first=1)]))
    labels = tuple(str(i) for i in range(1000))
    return TargetNetwork(module=module.eval(), preprocess=preprocess, labels=labels)


def images(count: int, first: int) -> list[EncodedImage]:
    """Uncorrelated colours of 16 x 16 pixels each: noise of single pixels would look alike to the network."""
    colours = np.random.default_rng(first).integers(0, 256, (count, 14, 14, 3), dtype=np.uint8)
    return [EncodedImage.of(one.repeat(16, axis=0).repeat(16, axis=1)) for one in colours]


def probes(layer: str, of: list[EncodedImage]) -> list[Probe]:
    return [Probe(unit=Unit(target="net", layer=layer, index=7 * i % 1000), image=image) for i, image in enumerate(of)]


def test_gpu_reads_what_a_cpu_reads_whatever_the_batch() -> None:
    given = images(12, first=0)
    batched = NetworkTarget("net", network(), LAYERS)
    alone = NetworkTarget("net", network(), LAYERS, batch=1)
    cpu = NetworkTarget("net", network(), LAYERS, device="cpu", threads=os.cpu_count() or 1)
    differences: dict[str, dict[str, float]] = {}
    for layer in LAYERS:
        read = {name: values(target, layer, given) for name, target in (("gpu", batched), ("one", alone), ("cpu", cpu))}
        scale = np.abs(read["cpu"]).max()
        differences[layer] = {
            "cpu": float(np.abs(read["gpu"] - read["cpu"]).max() / scale),
            "batch": float(np.abs(read["gpu"] - read["one"]).max() / scale),
            "images": float(np.ptp(read["cpu"]) / scale),
        }
    report(largest_difference_of_scale=differences)
    for each in differences.values():
        assert each["cpu"] < 1e-3
        assert each["batch"] < 1e-3
        assert each["images"] > 0.1


def values(target: NetworkTarget, layer: str, given: list[EncodedImage]) -> np.ndarray:
    return np.array([read.value for read in target.probe(probes(layer, given))])


def test_batches_are_faster_than_singles() -> None:
    target = NetworkTarget("net", network(), LAYERS, batch=max(COUNTS))
    figures: dict[int, dict[str, float]] = {}
    for count in COUNTS:
        target.probe(probes("layer4", images(count, first=1000 + count)))
        given = [probes("layer4", images(count, first=10_000 + 100 * count + i)) for i in range(3)]
        torch.cuda.reset_peak_memory_stats()
        seconds: list[float] = []
        for batch in given:
            started = time.perf_counter()
            target.probe(batch)
            seconds.append(time.perf_counter() - started)
        peak = torch.cuda.max_memory_allocated() / 2**30
        figures[count] = {"seconds": round(float(np.median(seconds)), 4), "peak_gib": round(peak, 2)}
    report(by_batch=figures)
    assert figures[64]["seconds"] < 64 * figures[1]["seconds"] / 2


def report(**figures: object) -> None:
    print(json.dumps(figures))
    if out := os.environ.get("OUT"):
        path = Path(out) / "target.json"
        known = json.loads(path.read_text()) if path.exists() else {"gpu": torch.cuda.get_device_name()}
        path.write_text(json.dumps(known | figures, indent=1))
