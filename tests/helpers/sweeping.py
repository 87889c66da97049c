"""Cheap investigations of the real kind: units computed from pixels, a replayed conversation, a few drawn pictures."""

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.units import Unit
from openmaia.runs.run import Run
from tests.cluster.agent_tools import take_number
from tests.conftest import REPOSITORY

ANSWER = "[DESCRIPTION]: whatever it was shown\n[LABEL 1]: red"

EXPERIMENTS = (
    """[HYPOTHESIS LIST]:
1. red

[CODE]:
```python
exemplars = tools.dataset_exemplars(system)
values, images = system.call_neuron(tools.text2image(["a red square"]))
print(values)
```""",
    """[CODE]:
```python
values, images = system.call_neuron(tools.text2image(["a red square", "a blue circle"]))
tools.display(images, values)
```""",
    ANSWER,
)


def pictures(folder: Path, count: int = 16) -> Path:
    """Patches of colour, all different."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((96, 96), Image.Resampling.NEAREST).save(folder / f"{seed}.png")
    return folder


def replayed(path: Path, replies: Sequence[str]) -> Path:
    """A published history that holds these replies."""
    path.write_text(json.dumps([{"role": "assistant", "content": reply} for reply in replies]))
    return path


def sources(folder: Path, replies: Sequence[str] = EXPERIMENTS) -> list[str]:
    """Config sources of a run below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "sources.yaml"  # what a file sets, an override may replace by another component with its own keys
    file.write_text(
        json.dumps(
            {
                "pictures": {"kind": "folder", "folder": str(pictures(folder / "pictures"))},
                "generator": {"parts": "pictures", "size": 64},
                "editor": {"parts": "pictures"},
                "paths": {name: str(folder / name) for name in ("runs", "exemplars", "cache")},
                "backbone": {"kind": "replay", "record": str(replayed(folder / "history.json", replies))},
                "exemplars": {"k": 3},
                "evaluate": {"n": 2, "looks": [], "random_words": 10},
                "task": {"evidence": {"confirm": 0, "experiments": 0, "labels": 0}},
            }
        )
    )
    return [str(REPOSITORY / "configs/closed-form.yaml"), str(file)]


LAYERS = {"mono": 6, "or": 3, "and": 3}
"""Of the closed-form target: 12 units in all."""


def planned(config: Config, count: int) -> Run:
    """A run with so many pending investigations: of the first units of the target, with replicates if there are more."""
    units = [Unit(target=config.target.name, layer=layer, index=i) for layer, n in LAYERS.items() for i in range(n)]
    several = next(size for size in range(len(units), 0, -1) if count % size == 0)
    run = Run.create(config)
    run.set_plan(units[:several], count // several)
    return run


def short(folder: Path, *overrides: str) -> Config:
    """Investigations that end in their first turn, and ask no service for anything."""
    return load([*sources(folder, [ANSWER]), *overrides])


# -- tools that tell a test about the process that investigates -----------------------------------------------------


def process_id() -> int:
    """The process that investigates."""
    return os.getpid()


def node_id() -> str:
    """The node on which it runs."""
    import ray

    return ray.get_runtime_context().get_node_id()


def heavy_modules() -> list[str]:
    """Those of the model stack that it has imported."""
    heavy = ("torch", "torchvision", "transformers", "diffusers", "vllm", "timm", "wandb", "scipy")
    return [name for name in heavy if name in sys.modules]


def wait(seconds: float) -> None:
    """Takes its time."""
    time.sleep(seconds)


def hold(folder: str) -> None:
    """Takes the next number of the folder `calls`, and waits until the file `allowed` beside it names no smaller one."""
    number = take_number(Path(folder) / "calls")
    while int((Path(folder) / "allowed").read_text()) < number:
        time.sleep(0.05)


def wait_for_node(folder: str) -> None:
    """If the file `expected` names a node, waits until this tool was called on it, too."""
    (Path(folder) / node_id()).touch()
    expected = Path(folder) / "expected"
    while expected.exists() and not (Path(folder) / expected.read_text()).exists():
        time.sleep(0.1)


def wait_for_processes(folder: str, count: int, calls: int) -> None:
    """Waits until so many calls, in so many processes, have begun."""
    (Path(folder) / f"{os.getpid()}-{uuid.uuid4().hex}").touch()
    while len(names := os.listdir(folder)) < calls or len({name.partition("-")[0] for name in names}) < count:
        time.sleep(0.1)


def unit_under_investigation() -> Unit | None:
    """The unit whose investigation calls the tool, None outside of one."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        around = getattr(frame.f_locals.get("self"), "context", None)
        if around is not None and hasattr(around, "unit"):
            return around.unit
    return None


def end_the_process() -> None:
    """Kills the process where it investigates unit 3."""
    unit = unit_under_investigation()
    if unit is not None and unit.index == 3:
        os.kill(os.getpid(), signal.SIGKILL)
