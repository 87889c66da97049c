"""What a measurement of an agent costs: one unit on new images, on images measured before, and with the unit scaled.

    make bench only=measurements
    python -m measure.benchmarks.measurements compare commit=301252ff

Milliseconds per image are CPU time of the process on a CPU, and time by the clock on a GPU. `plain` is the network alone, on
inputs that are on its device, and `reading` what decodes an image and makes an input of it. Bytes are those of the arrays that a caller gets: on a GPU, what leaves it. `compare` measures an
earlier commit, too, in a process of its own, and how far both differ.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from openmaia.core.images import EncodedImage
from openmaia.core.services import Intervention, Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import load
from openmaia.models.targets.preprocess import TargetNetwork

NETWORKS: Mapping[str, tuple[str, str, list[str], str]] = {
    "resnet18": ("resnet18", "untrained", ["layer1", "layer2", "layer3", "layer4", OUTPUT], "layer4"),
    "efficientnet_lite0": ("efficientnet_lite0", "", ["_blocks.2", "_blocks.10", "_conv_head", OUTPUT], "_blocks.10"),
    "scenes_resnet": ("openmaia.offline.networks:scenes_resnet", "", ["stage2", "stage3", "stage4", OUTPUT], "stage3"),
}
"""Name, weights, layers, and the layer of the unit."""

COUNT = 64  # images of a measurement

UNIT = 7


def network(name: str) -> TargetNetwork:
    torch.manual_seed(0)
    named, weights, _, _ = NETWORKS[name]
    return load(named, weights, "weights")


def images(count: int, first: int, side: int = 224) -> list[EncodedImage]:
    """Colour fields, encoded as a generator does it."""
    random = np.random.default_rng(first)
    cells = random.integers(0, 256, (count, 14, 14, 3), dtype=np.uint8)
    return [EncodedImage.of(each.repeat(side // 14, axis=0).repeat(side // 14, axis=1)) for each in cells]


def timed(call: Callable[[], Any], count: int) -> tuple[float, Any]:
    """Milliseconds per image, and what the call returned."""
    has_gpu = torch.cuda.is_available()
    clock = time.perf_counter if has_gpu else time.process_time
    began = clock()
    found = call()
    if has_gpu:
        torch.cuda.synchronize()
    return 1000 * (clock() - began) / count, found


def one(name: str, count: int, repeats: int) -> tuple[dict[str, float], list[float]]:
    """Figures of this version, the best of all repeats, and the values that it measured."""
    torch.set_num_threads(1)
    _, _, layers, layer = NETWORKS[name]
    unit, made = Unit(target=name, layer=layer, index=UNIT), network(name)
    plain, target = made.module.eval(), NetworkTarget(name, made, layers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    best: dict[str, float] = {}
    values: list[float] = []
    for repeat in range(repeats):
        new = images(count, repeat)
        probes = [Probe(unit=unit, image=image) for image in new]
        changes = [Intervention(unit=unit, image=image) for image in images(count, repeat)]
        others = images(count, 1000 + repeat)
        reading, batch = timed(
            lambda others=others: torch.stack(
                [made.preprocess.tensor(made.preprocess.view(image.pixels)[0]) for image in others]
            ),
            count,
        )
        with torch.inference_mode():
            parts = [part.to(device) for part in batch.split(target._probed)]
            took = {"plain": timed(lambda parts=parts: [plain(part) for part in parts], count)[0], "reading": reading}
        took["one unit, new images"], read = timed(lambda probes=probes: target.probe(probes), count)
        took["one unit, measured before"], _ = timed(lambda probes=probes: target.probe(probes), count)
        target.can_intervene(layer)
        again = [Intervention(unit=unit, image=image) for image in images(count, 1000 + repeat)]
        took["one unit scaled, new images"], _ = timed(lambda again=again: target.intervene(again), count)
        took["one unit scaled"], scaled = timed(lambda changes=changes: target.intervene(changes), count)
        best = {key: min(best.get(key, value), value) for key, value in took.items()}
        values += [each.value for each in read] + [float(each) for answer in scaled for each in answer[:8]]
        sizes = [(0 if each.map is None else each.map.nbytes) + np.float32().nbytes for each in read]
        responses = target.responses([made.preprocess.view(new[0].pixels)[0]], [""])
    whole = sum(each.nbytes for each in responses.values())
    figures = {f"{key}, ms per image": value for key, value in best.items()}
    figures |= {"bytes per image": float(np.mean(sizes)), "bytes of all layers per image": float(whole)}
    best["plain with reading"] = best["plain"] + best["reading"]
    over = (
        ("one unit scaled", "plain"),
        ("one unit scaled, new images", "plain"),
        ("one unit scaled, new images", "plain with reading"),
    )
    return figures | {f"{one} over {other}": best[one] / best[other] for one, other in over}, values


def measure(smoke: bool) -> dict[str, Any]:
    return {name: one(name, 4 if smoke else COUNT, 1 if smoke else 3)[0] for name in NETWORKS}


def compare(commit: str, count: int, repeats: int) -> dict[str, Any]:
    """Both versions, and the largest difference of values as a share of the largest."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as earlier:
        packed = subprocess.run(["git", "archive", commit, "openmaia"], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", earlier], input=packed, check=True)
        for name in NETWORKS:
            versions: dict[str, tuple[dict[str, float], list[float]]] = {}
            for version, folder in (("before", Path(earlier)), ("now", Path.cwd())):
                environment = os.environ | {"PYTHONPATH": str(folder)}
                asked = [sys.executable, __file__, "one", f"name={name}", f"count={count}", f"repeats={repeats}"]
                done = subprocess.run(
                    asked, env=environment, cwd=earlier, check=True, stdout=subprocess.PIPE, text=True
                )
                versions[version] = json.loads(done.stdout.splitlines()[-1])
            before, now = (np.array(versions[version][1]) for version in ("before", "now"))
            differs = float(np.abs(before - now).max() / np.abs(before).max())
            found[name] = {version: figures for version, (figures, _) in versions.items()} | {
                "largest difference": differs
            }
    return found


def main() -> None:
    mode, *rest = sys.argv[1:] or [""]
    given = dict(argument.split("=", 1) for argument in rest)
    count, repeats = int(given.get("count", COUNT)), int(given.get("repeats", 3))
    if mode == "one":
        print(json.dumps(one(given["name"], count, repeats)))
    elif mode == "compare" and "commit" in given:
        print(json.dumps(compare(given["commit"], count, repeats), indent=1))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
