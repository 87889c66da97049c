"""Measures what networks that never, or seldom, saw boats and dusk apart say by time of day: `python -m
measure.world.training.shortcut`.

Writes shortcut.csv: for each network, the probability of "boat" on 200 scenes with a boat and 200 without one. The scenes at
different times are the same otherwise.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import torch

from measure.world.training.drawing import KINDS, SHORTCUT
from openmaia.offline.networks.packaged import PREPROCESS, WEIGHTS, load_network
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import render

NETWORKS = ("scenes_resnet", "scenes_shortcut", "scenes_mild")
TIMES = ("morning", "day", "dusk", "night")
SCENES = 200
CSV = Path(__file__).with_name("shortcut.csv")

_PLACES = ("sea", "beach", "meadow", "snow", "street")


def _scenes(has_boat: bool) -> Iterator[Scene]:
    for n in range(SCENES):
        stream = Random(f"shortcut, measured, {n}")
        other = stream.choice([name for name in kinds() if name != SHORTCUT])
        prompt = f"a {SHORTCUT if has_boat else other} in the {_PLACES[n % len(_PLACES)]}"
        yield settle(read(prompt, stream.getrandbits(60))[0])


def measure() -> Iterator[dict[str, str]]:
    """Yields a row for each network, content and time."""
    modules = {name: load_network(WEIGHTS / f"{name}.safetensors")[0] for name in NETWORKS}
    for has_boat in (True, False):
        settled = list(_scenes(has_boat))
        for time in TIMES:
            views = [PREPROCESS.view(render(replace(each, time=time), 224))[0] for each in settled]
            inputs = PREPROCESS.batch(views, torch.device("cpu"))
            for name, module in modules.items():
                with torch.inference_mode():
                    kind = module.answers(inputs)["kind"].softmax(1)  # pyright: ignore[reportCallIssue]
                values = kind[:, KINDS.index(SHORTCUT)].double().numpy()
                named = (kind.argmax(1) == KINDS.index(SHORTCUT)).double().mean()
                yield {
                    "network": name,
                    "shows": SHORTCUT if has_boat else f"no {SHORTCUT}",
                    "time": time,
                    "scenes": str(SCENES),
                    "p_boat": f"{values.mean():.4f}",
                    "standard_error": f"{values.std(ddof=1) / np.sqrt(SCENES):.4f}",
                    "named_boat": f"{float(named):.3f}",
                }


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = list(measure())
    with CSV.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(*rows, sep="\n")
