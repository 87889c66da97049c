"""Exemplars side by side with a bare forward loop and with a builder that takes one layer after the other.

All variants decode the same files in the same way. `bare` shows each picture to the network and keeps nothing. `first
pass` hooks all the layers and keeps the summaries. `whole` is what `openmaia exemplars` does for four layers. `by layer`
does for each of the four layers what the published builders do: a pass for the top pictures and for a quantile over all
positions, a pass for the masked pictures of those, kept as arrays. `drawn` is what MILAN's builder does besides, unless it
is told not to: a PNG file of every masked exemplar (`src/exemplars/compute.py` of evandez/neuron-descriptions, save_viz).
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from PIL import Image

from openmaia.assembly import ConfigAssembly, targets
from openmaia.assembly import exemplars as assembled
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import Pixels, upsample
from openmaia.core.units import Unit
from openmaia.datasets.library import ImageDataset
from openmaia.distributed import exemplars as remote
from openmaia.distributed.cluster.connection import cluster
from openmaia.exemplars import compute as exemplars
from openmaia.exemplars import passes
from openmaia.exemplars.pictures import shrink
from openmaia.exemplars.store import ExemplarStore
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.offline.packaged.library import fetch
from tests.conftest import REPOSITORY
from tests.helpers.looking import look
from tests.prepare import CACHE

BLOCK = 4096
"""Positions that the sketch sorts together."""

PICTURES = 200
"""Of the explore split, so that all parts take 20 minutes. The figures in RESULTS.md are of 500 (12 minutes) and of 2,000 (38)."""

K, DRAWN = 15, 8
"""Exemplars of a unit. Of so many units one has its PNGs drawn, and its time counts for all of them: they are 36,000 files."""

SMOKE = 20, 2, 200
"""PICTURES, K and DRAWN of a benchmark that need only run."""

NETWORKS = {
    "efficientnet_lite0": (
        ["_conv_stem", *(f"_blocks.{i}" for i in range(16)), "_conv_head"],
        ["_blocks.2", "_blocks.6", "_blocks.10", "_conv_head"],
    ),
    "resnet18": (["layer1", "layer2", "layer3", "layer4"], ["layer1", "layer2", "layer3", "layer4"]),
}
"""All layers hooked in the first pass, and four for the whole job."""


def dataset(folder: Path, count: int) -> None:
    """JPEG files of 320 x 240, each another part of a photograph of the demo's library."""
    folder.mkdir()
    photos = [item for item in ImageDataset.open(fetch(CACHE, print)).items if item.kind == "photo"]
    random = np.random.default_rng(0)
    for first, item in enumerate(photos):
        image = item.load().convert("RGB")
        for number in range(first, count, len(photos)):
            width = random.uniform(0.5, 1.0) * min(image.width, image.height * 4 / 3)
            height = width * 3 / 4
            left, top = random.uniform(0, image.width - width), random.uniform(0, image.height - height)
            part = image.resize((320, 240), box=(left, top, left + width, top + height), reducing_gap=2.0)
            part.save(folder / f"{number}.jpg", quality=90)


def config(network: str, layers: list[str], folder: Path, root: Path) -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "target.kind=network",
            f"target.name={network}",
            f"target.network={network}",
            *(["target.weights=untrained"] if network == "resnet18" else []),
            f"target.layers=[{','.join(layers)}]",
            "pictures.kind=folder",
            f"pictures.folder={folder}",
            f"paths.exemplars={root}",
        ]
    )


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def decoded(items: list[exemplars.DatasetImage]) -> Iterator[Pixels]:
    for item in items:
        yield shrink(item.load())


def bare(target: NetworkTarget, items: list[exemplars.DatasetImage]) -> None:
    network = target._network
    with torch.inference_mode():
        for pixels in decoded(items):
            network.module(network.preprocess.tensor(network.preprocess.view(pixels)[0])[None])


class Sketch:
    """Quantiles of a stream in bounded memory, as the published builders keep them: blocks of values are sorted, and of two
    neighbours one is kept."""

    def __init__(self, units: int):
        self._levels: list[list[np.ndarray]] = [[]]
        self._waiting: list[np.ndarray] = []
        self._units = units

    def add(self, values: np.ndarray) -> None:
        """values: (units, positions)."""
        self._waiting.append(values)
        if sum(part.shape[1] for part in self._waiting) >= BLOCK:
            self._push(np.concatenate(self._waiting, axis=1), 0)
            self._waiting = []

    def quantile(self, q: float) -> np.ndarray:
        """(units,)"""
        parts = [np.repeat(part, 2**level, axis=1) for level, found in enumerate(self._levels) for part in found]
        return np.quantile(np.concatenate([*parts, *self._waiting], axis=1), q, axis=1)

    def _push(self, values: np.ndarray, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(np.sort(values, axis=1))
        if len(self._levels[level]) == 2:
            both = np.sort(np.concatenate(self._levels[level], axis=1), axis=1)
            self._levels[level] = []
            self._push(both[:, ::2], level + 1)


def by_layer(settings: Config, items: list[exemplars.DatasetImage], k: int, out: Path) -> None:
    """Per layer: a pass for each unit's top k and quantile over all positions, a pass for the masked pictures of those."""
    chosen: Any = settings.target
    for layer in list(chosen.layers):
        chosen.layers = [layer]
        target = targets.target(settings)
        maxima: list[np.ndarray] = []
        sketch = Sketch(target.info().layers[layer])
        for pixels in decoded(items):
            ((_, found),) = look(target, [pixels])
            flat = found[layer].reshape(len(found[layer]), -1)
            maxima.append(flat.max(axis=1))
            sketch.add(flat)
        thresholds = sketch.quantile(0.99)
        order = np.argsort(-np.stack(maxima), axis=0)[:k]
        side = settings.generator.size
        images = np.lib.format.open_memmap(out / f"{layer}.npy", "w+", np.uint8, (order.shape[1], k, side, side, 3))
        masks = np.lib.format.open_memmap(out / f"{layer}.masks.npy", "w+", np.bool_, (order.shape[1], k, side, side))
        ranks = {n: np.argwhere(order == n) for n in map(int, np.unique(order))}
        for number, pixels in enumerate(decoded(items)):
            if number not in ranks:
                continue
            ((box, found),) = look(target, [pixels])
            view = Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR, box)
            for rank, unit in ranks[number]:
                images[unit, rank] = np.asarray(view)
                masks[unit, rank] = upsample(found[layer][unit], side, side) > thresholds[unit]


def drawn(layers: Sequence[str], out: Path, every: int) -> None:
    """A PNG of each masked exemplar, with what is masked at a quarter of its light."""
    for layer in layers:
        (out / layer).mkdir()
        images, masks = np.load(out / f"{layer}.npy", mmap_mode="r"), np.load(out / f"{layer}.masks.npy", mmap_mode="r")
        for unit in range(0, len(images), every):
            for rank, (image, mask) in enumerate(zip(images[unit], masks[unit], strict=True)):
                Image.fromarray(np.where(mask[..., None], image, image // 4)).save(out / layer / f"{unit}-{rank}.png")


def forget_peak() -> None:
    """The kernel then counts the process's peak of memory from here (proc_pid_clear_refs(5))."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mib() -> float:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def _on_ray(settings: Config, layers: list[str]) -> None:
    with remote.team(settings, ConfigAssembly()) as workers:
        workers.compute(layers, lambda done, total: None)


def compare(network: str, folder: Path, k: int, every: int) -> dict[str, float]:
    """What needs one core is timed on one (`bare`, `first pass`); the two jobs each take what the machine has: ours as
    many processes as it has cores, the other one as many threads."""
    hooked, four = NETWORKS[network]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        all_layers = config(network, hooked, folder, Path(root) / "all")
        worker = assembled.worker(all_layers)
        scales = worker.scales(hooked)
        items = worker._items
        bare(worker._reader, items[:8])
        plain = [seconds(lambda: bare(worker._reader, items))]
        forget_peak()
        first = seconds(lambda: worker.first(scales, range(len(items))))
        memory = peak_mib()
        plain.append(seconds(lambda: bare(worker._reader, items)))
        some = config(network, four, folder, Path(root) / "four")
        whole = seconds(lambda: _on_ray(some, four))
        torch.set_num_threads(os.cpu_count() or 1)
        slow = seconds(lambda: by_layer(config(network, four, folder, Path(root) / "slow"), items, k, Path(root)))
        files = every * seconds(lambda: drawn(four, Path(root), every))
        store = ExemplarStore.at(str(Path(root) / "four"), network, "folder")
        units = sum(len(store.units(layer)) for layer in four)
        reads = [
            seconds(partial(store.read, Unit(target=network, layer=layer, index=unit)))
            for layer in four
            for unit in range(0, len(store.units(layer)), max(len(store.units(layer)) // 8, 1))
        ]
        once = fmean(plain)
        return {
            "pictures": len(items),
            "bare, images/s": len(items) / once,
            "first pass over all layers, images/s": len(items) / first,
            "first pass / bare": once / first,
            "whole job of four layers, in bare passes": whole / once,
            "by layer, in bare passes": slow / once,
            "PNGs of the masked exemplars, in bare passes": files / once,
            "whole job over by layer": slow / whole,
            "whole job over by layer and PNGs": (slow + files) / whole,
            "peak memory of the first pass, MiB": memory,
            "summaries, kB per unit": passes.histogram.BINS * 8 / 1000,
            "store, kB per unit": sum(store.files.sizes("").values()) / units / 1000,
            "read one unit, ms": 1000 * median(reads),
            "read one unit, the first of a process, ms": 1000 * reads[0],
        }


def measure(smoke: bool) -> dict[str, object]:
    pictures, k, every = SMOKE if smoke else (PICTURES, K, DRAWN)
    with tempfile.TemporaryDirectory() as folder, cluster(config("resnet18", [], Path(folder), Path(folder))):
        dataset(Path(folder) / "pictures", 2 * pictures)
        found = {
            network: compare(network, Path(folder) / "pictures", k, every)
            for network in list(NETWORKS)[: 1 if smoke else None]
        }
    return {
        "of_forward": min(one["first pass / bare"] for one in found.values()),
        "over_layerwise": min(one["whole job over by layer and PNGs"] for one in found.values()),
        "over_layerwise_without_pngs": min(one["whole job over by layer"] for one in found.values()),
        **found,
    }
