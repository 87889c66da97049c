"""On a machine with one GPU, a run whose config names no shares of it takes those of a config for such a machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openmaia.checks.one_gpu import divide, share_gpu
from openmaia.config.loading import load
from openmaia.distributed.cluster.cards import visible
from openmaia.distributed.cluster.resources import NodeResources, shortage
from openmaia.models.backbones.vllm.component import VllmBackboneConfig
from tests.conftest import REPOSITORY

GB = 10**9
NETWORK = ["name=x", "units=all", "target.name=t", "target.network=resnet18", "target.layers=[layer4]"]
MODELS = ["generator.kind=diffusers", "generator.model=a/b", "editor.kind=diffusers", "editor.model=a/c"]
LISTED = "0, GPU-aaaa, 24564\n1, GPU-bbbb, 81559\n"


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(85 * GB, "0.09, 0.16, 0.16, 0.59"), (24 * GB, "0.1, 0.18, 0.18, 0.54"), (0, "0.1, 0.18, 0.18, 0.54")],
)
def test_shares_are_those_of_the_largest_machine_that_the_gpu_can_stand_for(memory: int, expected: str):
    sources = [*NETWORK, *MODELS, "backbone.kind=vllm", "backbone.model=a/d"]
    found, sentence = divide(load(sources), (), memory)
    config = load([*found, *sources])
    pools = (config.pools.target, config.pools.generator, config.pools.editor, config.pools.backbone)
    assert ", ".join(f"{pool.num_gpus:g}" for pool in pools) == expected
    assert isinstance(config.backbone, VllmBackboneConfig) and config.backbone.kv_cache_gb > 0
    assert shortage([config], [NodeResources(gpus=1, cpus=8)]) == ""
    assert f"target {expected.partition(',')[0]}, generator" in sentence


def test_services_without_weights_take_nothing_of_the_gpu():
    found, sentence = divide(load(["configs/demo.yaml"]), (), 24 * GB)
    assert [key for key in found if key.partition("=")[0].endswith("num_gpus")] == ["pools.target.num_gpus=0.1"]
    assert "generator" not in sentence


@pytest.mark.parametrize(("sources", "memory"), [(NETWORK, 8 * GB), (["configs/closed-form.yaml"], 24 * GB)])
def test_nothing_is_shared_if_the_gpu_is_small_or_no_model_needs_it(sources: list[str], memory: int):
    assert divide(load(sources), (), memory) == ([], "")


def test_what_is_given_stays():
    given = ["pools.target.max_batch=7"]
    found, _ = divide(load([*NETWORK, *given]), ["pools.target.max_batch"], 24 * GB)
    assert load([*found, *NETWORK, *given]).pools.target.max_batch == 7
    assert found == ["pools.target.num_gpus=0.1"]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [(None, [24564, 81559]), ("", []), ("-1", []), ("1", [81559]), ("GPU-aaaa", [24564]), ("0, 1", [24564, 81559])],
)
def test_gpus_are_those_that_are_visible(devices: str | None, expected: list[int]):
    assert visible(LISTED, devices) == [size * 2**20 for size in expected]


def test_gpu_without_memory_of_its_own_has_no_known_size():
    assert visible("0, GPU-aaaa, [N/A]\n", None) == [0]


@pytest.mark.parametrize("told", ["", "NVIDIA-SMI has failed\n"])
def test_other_tables_list_no_gpu(told: str):
    assert visible(told, None) == []


class OneGpuMachine:
    """Puts an nvidia-smi that lists given GPUs first on the path."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self._path = folder / "nvidia-smi"
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def has(self, listed: str) -> None:
        self._path.write_text(f"#!/bin/sh\ncat <<END\n{listed}END\n")
        self._path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneGpuMachine:
    return OneGpuMachine(tmp_path, monkeypatch)


def shared(*sources: str) -> list[str]:
    return share_gpu([*NETWORK, *sources], [load([*NETWORK, *sources])], torch="2.13.0")[0]


def test_only_gpu_of_this_machine_is_shared(machine: OneGpuMachine):
    machine.has("0, GPU-aaaa, 24564\n")
    assert shared() == ["pools.target.num_gpus=0.1", "pools.target.max_batch=32"]
    machine.has(LISTED)
    assert shared() == []


def test_installation_for_cpus_uses_no_gpu(machine: OneGpuMachine):
    machine.has("0, GPU-aaaa, 24564\n")
    assert share_gpu(NETWORK, [load(NETWORK)], torch="2.13.0+cpu") == ([], "")


def test_model_that_draws_and_edits_has_the_share_of_both():
    config = load([*NETWORK, "configs/models/flux2-klein.yaml"])
    found, sentence = divide(config, (), 86 * 10**9)
    assert "pools.generator.num_gpus=0.32" in found and "generator 0.32" in sentence
    assert not any(key.startswith("pools.editor") for key in found)


def test_a_config_that_says_where_its_models_are_is_left_as_it_is(machine: OneGpuMachine, tmp_path: Path):
    machine.has("0, GPU-aaaa, 24564\n")
    file = tmp_path / "cpu.yaml"
    file.write_text("pools: {generator: {num_gpus: 0}}\n")
    for given in ("pools.target.num_gpus=0", str(file), "pools.target.num_gpus=0.5", "ray.address=auto"):
        assert shared(given) == []


def test_gpu_that_ray_was_told_of_is_shared():
    code = (
        "import json, openmaia.distributed, ray\n"
        "ray.init(address='local', num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)\n"
        "from openmaia.checks.one_gpu import share_gpu\n"
        "from openmaia.config.loading import load\n"
        "from openmaia.distributed.cluster.preflight import check_room\n"
        f"sources, said = {NETWORK!r}, []\n"
        "found, sentence = share_gpu(sources, [load(sources)], torch='2.13.0')\n"
        "check_room([load(sources)], said.append)\n"
        "check_room([load([*found, *sources])], said.append)\n"
        "print(json.dumps([found, sentence, said]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found, sentence, said = json.loads(done.stdout.splitlines()[-1])
    assert found[0] == "pools.target.num_gpus=0.1"
    assert "one GPU of unknown memory" in sentence
    assert len([line for line in said if "no pool requests one of the 1 GPUs" in line]) == 1
