"""The passes over exemplars: those of an earlier commit beside those of the working tree, and on a GPU.

    python -m measure.benchmarks.exemplar_passes compare commit=b835b90 images=500 only=card,resnet18
    python measure/benchmarks/exemplar_passes.py gpu images=4096 network=resnet152 out=FOLDER

`compare` computes exemplars of the same images by both, each in processes of its own, and compares what is stored. `card`
is a network that takes 1 ms for 128 images and leaves all else to the pipeline. Rates are of images in the first pass. The
CPU time of the main thread says how fast a pass can be at most where cores are free: the network waits for this thread, and
for nothing else that more cores do not mend.

`gpu` compares with the CPU, and with a forward pass alone on images that are on the GPU already. It needs nothing of tests/:
it runs where openmaia/ was copied and torch, torchvision, pyarrow, omegaconf and cachetools are installed. Without a GPU it
rehearses: `network=resnet18 images=16 batch=8`. All figures are printed as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import Pixels, ViewBox
from openmaia.core.units import OUTPUT, TargetInfo, Unit
from openmaia.datasets.library import ImageDataset
from openmaia.exemplars.compute import ExemplarWorker, compute_exemplars
from openmaia.exemplars.store import ExemplarStore
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import loading
from openmaia.models.targets.preprocess import PreprocessPreset, TargetNetwork, published

LAYERS = {
    "card": ["pixels"],
    "efficientnet_lite0": ["_blocks.2", "_blocks.6", "_blocks.10", "_conv_head"],
    "resnet18": ["layer1", "layer2", "layer3", "layer4", OUTPUT],
    "resnet152": ["layer1", "layer2", "layer3", "layer4", OUTPUT],
}

REPEATS = 3
"""The two versions take turns, and the faster time of each counts, because the machine may do other things."""

FITTED = 128
"""Images from which the statistics of batch normalisation are computed. With random ones, activations overflow."""

CHECKED = 192
"""Images of which the exemplars are computed on a CPU, too."""


class Card:
    """A target on a card that takes 1 ms for 128 images: the host prepares and hands over, and the card does the rest."""

    batch = 128

    def __init__(self) -> None:
        self._preprocess = published((224, 224))

    def info(self) -> TargetInfo:
        return TargetInfo(name="card", layers={"pixels": 3}, digest="card", input_size=(224, 224))

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        square = np.asarray(Image.fromarray(pixels).resize((224, 224), Image.Resampling.BILINEAR))
        return square, (0, 0, pixels.shape[1], pixels.shape[0])

    def responses(self, views: Sequence[Pixels], _recipes: Sequence[str] = ()) -> dict[str, torch.Tensor]:
        stacked = torch.from_numpy(np.stack(views))
        time.sleep(1e-3 * len(views) / 128)
        return {"pixels": stacked[:, :7, :7].permute(0, 3, 1, 2).float()}

    def look(self, images: Sequence[Pixels]) -> list[tuple[ViewBox, Mapping[str, Any]]]:
        """What earlier versions call. The host normalises there."""
        views = [self.view(pixels) for pixels in images]
        torch.stack([self._preprocess.tensor(view) for view, _ in views])
        time.sleep(1e-3 * len(views) / 128)
        return [
            (box, {"pixels": np.ascontiguousarray(view[:7, :7].transpose(2, 0, 1), dtype=np.float32)})
            for view, box in views
        ]


def config(name: str, folder: Path, store: Path, limit: int = 0) -> Config:
    return load([
        "name=x", "units=all", "target.kind=network", f"target.name={name}", f"target.network={name}",
        f"target.layers=[{','.join(LAYERS[name])}]", "pictures.kind=folder", f"pictures.folder={folder}",
        f"exemplars.folder={folder}", f"pictures.limit={limit}", f"paths.exemplars={store}",
    ])  # fmt: skip


def network(name: str, preset: PreprocessPreset = "weights") -> TargetNetwork:
    torch.manual_seed(0)
    # Earlier commits call it otherwise.
    untrained = getattr(loading, "RANDOM", "untrained")
    made = loading.load(name, "" if name.startswith("efficientnet") else untrained, preset)
    fit(made.module)
    return made


def target(network: TargetNetwork, name: str, device: str, batch: int = 0) -> NetworkTarget:
    """A target of a copy, so that several devices have the same weights."""
    copied = replace(network, module=deepcopy(network.module))
    return NetworkTarget(name, copied, LAYERS[name], device=device, batch=batch)


def fit(module: torch.nn.Module) -> None:
    """Fits the batch normalisation of random weights to noise."""
    norms = [each for each in module.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    if all(bool((each.running_mean != 0).any()) for each in norms):
        return
    for each in norms:
        each.reset_running_stats()
        each.momentum = None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count = FITTED if device == "cuda" else 8
    noise = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = torch.nn.functional.interpolate(noise, (224, 224), mode="bicubic").to(device)
    with torch.no_grad():
        module.to(device).train()(batch)
    module.cpu().eval()


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def passes(name: str, folder: Path, store: Path, made: Any, limit: int = 0) -> dict[str, float]:
    """Seconds of both passes of this version."""
    worker = ExemplarWorker(config(name, folder, store, limit), made, ImageDataset.open(folder))
    images = len(worker._items)
    at: list[tuple[float, float]] = []

    def progress(done: int, _total: int) -> None:
        if done >= images and not at:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            at.append((time.perf_counter(), time.thread_time()))

    began, began_thread, used = time.perf_counter(), time.thread_time(), cpu_seconds()
    compute_exemplars(worker, LAYERS[name], progress)
    ended, ended_thread = time.perf_counter(), time.thread_time()
    half, half_thread = at[0]
    return {
        "images": images,
        "first, s": half - began,
        "second, s": ended - half,
        "images/s": images / (half - began),
        "first, main thread, CPU ms per image": 1000 * (half_thread - began_thread) / images,
        "second, main thread, CPU s": ended_thread - half_thread,
        "both, all threads and processes, CPU s": cpu_seconds() - used,
    }


def alone(made: NetworkTarget, batch: int, count: int, device: str) -> float:
    """Images a second of the network alone, on inputs that are on its device already."""
    inputs = torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(device)
    module = made._network.module
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    # On a CPU, the seconds of this thread: those by the clock depend on what else the machine does.
    clock = time.perf_counter if device == "cuda" else time.thread_time
    with torch.inference_mode():
        for _ in range(3):
            module(inputs)
        sync()
        began = clock()
        for _ in range(count // batch):
            module(inputs)
        sync()
    return count // batch * batch / (clock() - began)


def kept(name: str, root: Path) -> dict[str, Any]:
    """What a store holds of about 64 units of each layer, as the version of this process reads it."""
    store = ExemplarStore.at(str(root), name, "folder")
    found: dict[str, Any] = {}
    for layer in LAYERS[name]:
        units = sorted(store.units(layer))
        for index in units[:: max(len(units) // 64, 1)]:
            read = store.read(Unit(target=name, layer=layer, index=index))
            found[f"{layer}/{index}"] = {
                "exemplars": [
                    [each.kind, each.rank, list(each.image.sources), float(each.activation)] for each in read.exemplars
                ],
                "threshold": float(read.threshold),
                "maxima": [float(each) for each in read.maxima],
            }
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    """How far two stores differ, by what `kept` gives: the share of equal images at equal ranks, and the largest difference of
    values as a share of the largest value of the unit.
    """
    assert one.keys() == other.keys()
    same = total = 0
    far: dict[str, float] = {"activations": 0.0, "thresholds": 0.0, "quantiles": 0.0}
    for unit, mine in one.items():
        theirs = other[unit]
        largest = float(np.abs(mine["maxima"]).max()) or 1.0
        # Later versions keep further kinds of exemplars.
        ranks = {(kind, rank): rest for kind, rank, *rest in theirs["exemplars"]}
        for kind, rank, sources, activation in mine["exemplars"]:
            total += 1
            its_sources, its_activation = ranks[kind, rank]
            same += sources == its_sources
            far["activations"] = max(far["activations"], abs(activation - its_activation) / largest)
        far["thresholds"] = max(far["thresholds"], abs(mine["threshold"] - theirs["threshold"]) / largest)
        gap = np.abs(np.array(mine["maxima"]) - np.array(theirs["maxima"])).max()
        far["quantiles"] = max(far["quantiles"], float(gap) / largest)
    return {"equal images at equal ranks": same / total, **far}


def compare(given: Mapping[str, str]) -> dict[str, Any]:
    """Both versions on a CPU."""
    from measure.benchmarks.exemplars import dataset
    from tests.conftest import REPOSITORY

    count = int(given.get("images", "500"))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as root_name:
        root = Path(root_name)
        earlier = root / "earlier"
        earlier.mkdir()
        archive = subprocess.run(
            ["git", "archive", given["commit"], "openmaia"], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", str(earlier)], input=archive.stdout, check=True)
        dataset(root / "pictures", count)
        for name in given.get("only", "card,resnet18,efficientnet_lite0").split(","):
            best: dict[str, dict[str, float]] = {}
            stores: dict[str, Any] = {}
            for turn in range(int(given.get("repeats", REPEATS))):
                for version, path in (("before", earlier), ("now", REPOSITORY)):
                    store = root / f"{name}-{version}-{turn}"
                    command = [sys.executable, __file__, "one", f"name={name}", f"folder={root / 'pictures'}"]
                    done = subprocess.run(
                        [*command, f"store={store}"], cwd=root, env=os.environ | {"PYTHONPATH": str(path)},
                        check=True, stdout=subprocess.PIPE, text=True,
                    )  # fmt: skip
                    figures = json.loads(done.stdout.splitlines()[-1])
                    stores[version] = figures.pop("kept")
                    if version not in best or figures["first, s"] < best[version]["first, s"]:
                        best[version] = figures
            found[name] = {**best, "differences": differences(stores["before"], stores["now"])}
            print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def one(given: Mapping[str, str]) -> dict[str, Any]:
    """One version, that of PYTHONPATH, on a CPU."""
    torch.set_num_threads(1)
    name, store = given["name"], Path(given["store"])
    made = Card() if name == "card" else target(network(name), name, "cpu")
    found: dict[str, Any] = {**passes(name, Path(given["folder"]), store, made), "kept": kept(name, store)}
    if isinstance(made, NetworkTarget):
        found["forward alone, CPU ms per image"] = forward = 1000 / alone(made, 1, 30, "cpu")
        found["first, share of the main thread's CPU outside of the forward pass"] = (
            1 - forward / found["first, main thread, CPU ms per image"]
        )
    return found


def gpu(given: Mapping[str, str]) -> dict[str, Any]:
    """This version on a GPU, or on the CPU where there is none, as a rehearsal."""
    name, count = given.get("network", "resnet152"), int(given.get("images", "4096"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = Path(given.get("out", "."))
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
    }

    def note(key: str, value: Any) -> None:
        # Written at once, so that a run that is cut off leaves what it has found.
        found[key] = value
        (out / "exemplar_passes.json").write_text(json.dumps(found, indent=1) + "\n")
        print(key, json.dumps(value), flush=True)

    with tempfile.TemporaryDirectory() as root_name:
        root = Path(root_name)
        for sizes in ("equal", "mixed"):
            (root / sizes).mkdir()
            with ProcessPoolExecutor() as pool:
                list(pool.map(partial(_draw, root / sizes, sizes == "mixed"), range(count), chunksize=16))
        fitted = network(name)
        batch = int(given.get("batch", "0"))
        made = target(fitted, name, device, batch)
        note("batch", made.batch)
        note("forward alone, images/s", alone(made, made.batch, max(count // 2, made.batch), device))
        # The first run pays for libraries that are loaded late, and for the memory of the network.
        note("warm-up", passes(name, root / "equal", root / "warm", made, min(count, 512)))
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        note("pass", passes(name, root / "equal", root / "gpu", made))
        note("share of the forward pass", found["pass"]["images/s"] / found["forward alone, images/s"])
        if device == "cuda":
            note("peak memory, GB", torch.cuda.max_memory_allocated() / 1e9)
        checked = min(CHECKED, count)
        for version, device_name, own_batch in (("checked-gpu", device, batch), ("checked-cpu", "cpu", 0)):
            own = target(fitted, name, device_name, own_batch)
            torch.set_num_threads(os.cpu_count() or 1)
            note(version, passes(name, root / "equal", root / version, own, checked))
        note(
            "differences from the CPU",
            differences(*(kept(name, root / each) for each in ("checked-cpu", "checked-gpu"))),
        )
        shown = target(network(name, "published"), name, device, batch)
        note("pass, images of mixed sizes", passes(name, root / "mixed", root / "mixed-store", shown))
        if device == "cuda":
            note("pass with little memory", _with_little_memory(name, root, made))
    return found


def _with_little_memory(name: str, root: Path, made: Any) -> dict[str, Any]:
    """The pass of a process that may take 2 GB only, for which batches have to be halved."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.cuda.memory_allocated()
    torch.cuda.set_per_process_memory_fraction((held + 1.0e9) / total)
    try:
        found = passes(name, root / "equal", root / "little", made, 512)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {**found, "batch at the end": made.batch}


def _draw(folder: Path, is_mixed: bool, seed: int) -> None:
    """Writes a JPEG of the size of a photograph in ImageNet: colour fields, textures and noise, about 110 kB."""
    random = np.random.default_rng(seed)
    sizes = [(500, 375), (375, 500), (500, 333), (333, 500), (500, int(random.integers(250, 501)))]
    width, height = sizes[int(random.choice(5, p=[0.45, 0.15, 0.2, 0.1, 0.1]))] if is_mixed else sizes[0]
    total = random.normal(0, 11, (height, width, 1))
    for columns, share in ((int(random.integers(2, 9)), 0.55), (int(random.integers(12, 40)), 0.25), (width // 4, 0.2)):
        cells = random.integers(0, 256, (max(columns * height // width, 2), columns, 3), dtype=np.uint8)
        total = total + share * np.asarray(Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC))
    Image.fromarray(total.clip(0, 255).astype(np.uint8)).save(folder / f"{seed:06d}.jpg", quality=93)


def main() -> None:
    mode, *rest = sys.argv[1:] or [""]
    modes = {"compare": compare, "one": one, "gpu": gpu}
    if mode not in modes:
        sys.exit(__doc__)
    print(json.dumps(modes[mode](dict(argument.split("=", 1) for argument in rest))))


if __name__ == "__main__":
    main()
