"""`python -m tests.helpers.one_gpu FOLDER`: exemplars on a node with two pretended GPUs. One is held by others. The other is free
first, and then held by pools that are kept up. Writes what the tests of test_exemplars.py look at to FOLDER/found.json."""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines

import openmaia.distributed  # noqa: F401, I001  settles how Ray starts
import ray

from openmaia.assembly import ConfigAssembly, exemplars
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.distributed.exemplars import team
from openmaia.distributed.pools import kept
from tests.conftest import REPOSITORY
from tests.helpers.sweeping import pictures

LAYERS = ["0", "2"]


@ray.remote(num_gpus=1, num_cpus=0)
class Other:
    def ready(self) -> None:
        """Answers when the GPU is held."""


def config(folder: Path, store: str, gpus: int = 1) -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "target.kind=network",
            "target.name=net",
            "target.network=tests.helpers.networks:watchful",
            f"target.layers=[{','.join(LAYERS)}]",
            "pictures.kind=folder",
            "generator.parts=pictures",
            "editor.parts=pictures",
            f"pictures.folder={folder / 'pictures'}",
            f"paths.exemplars={folder / store}",
            f"pools.target.num_gpus={gpus}",
            "ray.exemplar_workers=2",
            "ray.address=auto",
        ]
    )


def main(folder: Path) -> None:
    pictures(folder / "pictures", 300)
    shown = folder / "shown"
    os.environ["OPENMAIA_TEST_SHOWN"] = str(shown)
    exemplars.make(config(folder, "reference"), LAYERS)
    ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)
    other = Other.remote()
    ray.get(other.ready.remote(), timeout=60)
    shown.unlink()
    found = {"free": compute(folder, "free") | {"shown": _lines(shown)}}
    _keep_up(config(folder, "none"))
    shown.unlink()
    found["held"] = compute(folder, "held") | {"shown": _lines(shown)}
    kept.down(config(folder, "none"))
    shown.unlink()
    found["not requested"] = compute(folder, "not-requested", gpus=0) | {"shown": _lines(shown)}
    shown.unlink()
    _keep_up(config(folder, "none", gpus=0))
    found["replica without"] = {"shown": _lines(shown)}
    kept.down(config(folder, "none", gpus=0))
    (folder / "found.json").write_text(json.dumps(found))
    ray.shutdown()


def _keep_up(settings: Config) -> None:
    kept.up(settings, ConfigAssembly())
    while kept.statistics(kept.names()[0])["target"].replicas < 1:
        time.sleep(0.2)


def compute(folder: Path, store: str, gpus: int = 1) -> dict[str, Any]:
    said, began = list[str](), time.monotonic()
    with team(config(folder, store, gpus), ConfigAssembly(), said.append) as workers:
        info = workers.info()
        seconds = time.monotonic() - began
        workers.compute(LAYERS, lambda done, total: None)
    return {"layers": list(info.layers), "info_seconds": seconds, "said": said}


def _lines(path: Path) -> dict[str, int]:
    return Counter(path.read_text().splitlines())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
