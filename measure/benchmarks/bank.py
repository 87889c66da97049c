"""What a bank costs: collages that are drawn once, measured on all layers of EfficientNet-Lite0 in one pass, and kept for each unit in a
second one. Seconds are of processor time, of one thread."""

import tempfile
import time
from contextlib import nullcontext
from typing import Any

import torch

from measure.benchmarks.exemplars import NETWORKS
from openmaia.assembly import datasets, exemplars, targets
from openmaia.assembly.generators import generator
from openmaia.config.loading import load
from openmaia.exemplars.bank import keep_bank, measured_config
from openmaia.exemplars.compute import compute_exemplars
from tests.conftest import REPOSITORY
from tests.prepare import CACHE

IMAGES, SMOKE = 1000, 20
NETWORK = "efficientnet_lite0"


def measure(smoke: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    layers = NETWORKS[NETWORK][0]
    with tempfile.TemporaryDirectory() as folder:
        config = load(
            [
                str(REPOSITORY / "configs/efficientnet-lite0.yaml"),
                f"target.layers=[{','.join(layers)}]",
                f"bank.images={SMOKE if smoke else IMAGES}",
                f"paths.exemplars={folder}",
                f"paths.cache={CACHE}",
            ]
        )
        target, drawing, dataset = targets.target(config), generator(config), datasets.image_dataset(config)
        began = time.process_time()
        bank = keep_bank(config, lambda: nullcontext(drawing), lambda: dataset)
        drawn = time.process_time() - began
        assert bank is not None
        worker = exemplars.worker(measured_config(config, bank), target=target, dataset=bank.dataset())
        began = time.process_time()
        worker.first(worker.scales(layers), range(worker.count()), lambda done: None)
        first = time.process_time() - began
        began = time.process_time()
        store = compute_exemplars(worker, layers)
        whole = time.process_time() - began
        return {
            "images": len(bank.images),
            "layers": len(layers),
            "units": sum(len(store.units(layer)) for layer in layers),
            "drawing_s": round(drawn, 2),
            "one_pass_s": round(first, 2),
            "both_passes_s": round(whole, 2),
            "stored_mb": round(store.size() / 1e6, 1),
        }
