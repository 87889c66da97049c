"""`openmaia doctor --download`: the files of the hub that a run loads are in the cache afterwards, of this machine or of each node."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.helpers.standin_hub import Repository, hub

CONFIG = ["name=x", "units=all", "target.name=t", "target.kind=closed_form", "generator.kind=diffusers"]
TEXTS = {
    "model_index.json": {"_class_name": "X"},
    "diffusion_pytorch_model.safetensors": "weights " * 1000,
    "diffusion_pytorch_model.bin": "the same weights again",
    "diffusion_pytorch_model.fp16.safetensors": "in half precision",
}
LOADED = {"model_index.json", "unet/diffusion_pytorch_model.safetensors"}
FILES = {name if name.endswith("json") else f"unet/{name}": name for name in TEXTS}
SIZES = {path: len(json.dumps(TEXTS[name])) for path, name in FILES.items()}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    gated = Repository(sizes=SIZES, texts=TEXTS, gated=True)
    with hub({"maker/small": Repository(sizes=SIZES, texts=TEXTS), "maker/gated": gated}) as served:
        yield served


def run(address: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_TOKEN": "",
        "HF_HUB_DISABLE_XET": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", *arguments], env=environment, capture_output=True, text=True, timeout=300, cwd=REPOSITORY
    )


def cached(home: Path) -> set[str]:
    (snapshot,) = (home / "hub/models--maker--small/snapshots").iterdir()
    return {path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()}


def test_what_the_run_loads_is_fetched_once(address: str, tmp_path: Path):
    config = [*CONFIG, "generator.model=maker/small"]
    for _ in range(2):
        done = run(address, "openmaia.cli.main", "doctor", "--download", *config, home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"generator.model=maker/small: in {tmp_path}" in done.stdout
    assert cached(tmp_path) == LOADED
    without_hub = run("http://127.0.0.1:9", "openmaia.cli.main", "doctor", "--download", *config, home=tmp_path)
    assert without_hub.returncode == 0, without_hub.stdout
    assert (tmp_path / "hub/models--maker--small/refs/main").is_file(), "found without the hub"


def test_gate_is_named_and_the_command_fails(address: str, tmp_path: Path):
    done = run(
        address, "openmaia.cli.main", "doctor", "--download", *CONFIG, "generator.model=maker/gated", home=tmp_path
    )
    assert done.returncode == 1
    assert "failed: generator.model='maker/gated' is gated: accept its licence" in done.stdout
    assert done.stderr == "error: 1 downloads failed; the lines above say why\n"


def test_config_without_weights_says_so(address: str, tmp_path: Path):
    done = run(address, "openmaia.cli.main", "doctor", "--download", *CONFIG[:-1], home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "this config names no weights that could be downloaded\n")


@pytest.mark.slow
def test_each_node_fetches_into_its_own_cache(address: str, tmp_path: Path):
    config = [*CONFIG, "generator.model=maker/small"]
    done = run(address, "tests.helpers.downloading", str(tmp_path), *config, home=tmp_path / "driver")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "maker/small: in " in line]
    assert len(lines) == 2
    assert cached(tmp_path / "first") == cached(tmp_path / "second") == LOADED
    assert not (tmp_path / "driver/hub/models--maker--small").exists()
