"""Weights in folders, in the cache and on the hub: what is there, what has to be fetched, what is out of reach."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.numpy import save_file

from openmaia.checks.memory import GpuInfo, replica_memory
from openmaia.checks.server import components
from openmaia.checks.weights import WeightReport, disk_space, inspect, inspect_network, weight_sources
from openmaia.config.loading import load
from openmaia.core.checks import ok
from tests.helpers.standin_hub import COMMIT, Repository, hub

LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]
DIFFUSION = [*LEAST, "generator.kind=diffusers"]
GB = 10**9
H100 = GpuInfo("H100", 80 * GB, 80 * GB)

FLUX = {
    "model_index.json": 536,
    "flux1-dev.safetensors": 24 * GB,
    "transformer/diffusion_pytorch_model-00001-of-00002.safetensors": 20 * GB,
    "transformer/diffusion_pytorch_model-00002-of-00002.safetensors": 4 * GB,
    "text_encoder_2/model-00001-of-00001.safetensors": 10 * GB,
}
SD15 = {
    "v1-5-pruned.safetensors": 8 * GB,
    "unet/diffusion_pytorch_model.safetensors": 3 * GB,
    "unet/diffusion_pytorch_model.fp16.safetensors": 2 * GB,
    "unet/diffusion_pytorch_model.bin": 3 * GB,
    "text_encoder/model.safetensors": GB,
    "safety_checker/model.safetensors": 7 * GB,
}
MISTRAL = {"params.json": 500, "consolidated.safetensors": 48 * GB, "model-00001-of-00001.safetensors": 49 * GB}
REPOSITORIES = {
    "maker/flux": Repository(sizes=FLUX),
    "maker/gated": Repository(sizes=FLUX, gated=True, allowed=("let-in",)),
    "maker/sd15": Repository(sizes=SD15),
    "maker/gemma": Repository(sizes={"model.safetensors": 54 * GB}, dtypes={"BF16": 27 * GB, "F32": 5}),
    "maker/mistral": Repository(sizes=MISTRAL),
    "maker/code": Repository(sizes={"README.md": 5, "config.json": 9}),
    "maker/saes": Repository(
        sizes={"a/cfg.json": 5, "a/sae_weights.safetensors": 3 * GB, "b/sae_weights.safetensors": 7 * GB}
    ),
    "maker/down": Repository(sizes={}, status=503),
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with hub(REPOSITORIES) as served:
        yield served


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Points huggingface_hub, which reads its environment when it is imported, to a server and an empty cache."""

    def set_endpoint(endpoint: str) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)

    return set_endpoint


@pytest.fixture(autouse=True)
def online(connect: Callable[[str], None], address: str) -> None:
    connect(address)


def reports(*overrides: str) -> list[WeightReport]:
    return inspect(weight_sources(load([*LEAST, *overrides])))


def generator(model: str | Path, *overrides: str) -> WeightReport:
    """The report on the generator's pipeline."""
    return reports("generator.kind=diffusers", f"generator.model={model}", *overrides)[0]


def backbone(model: str | Path, *overrides: str) -> WeightReport:
    [report] = reports("backbone.kind=vllm", f"backbone.model={model}", *overrides)
    return report


def write(folder: Path, *names: str, dtype: type = np.float16, count: int = 1000) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({"weight": np.zeros(count, dtype)}, path)
    return folder


def cached(tmp_path: Path, repository: str, *names: str, commit: str = COMMIT) -> Path:
    """Writes weights as huggingface_hub lays them out in its cache."""
    root = tmp_path / "cache" / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text(commit)
    return write(root / "snapshots" / commit, *names)


def target(*overrides: str) -> list[WeightReport]:
    return reports("target.kind=network", "target.network=resnet18", "target.layers=[layer1]", *overrides)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_weights_in_a_folder_are_found(tmp_path: Path):
    report = generator(write(tmp_path / "flux", "transformer/diffusion_pytorch_model.safetensors"))
    assert report.result.state == "ok" and "2.1 kB in that folder" in report.result.message


@pytest.mark.parametrize("kept", [4, 40, 1500])
def test_truncated_weights_are_named(tmp_path: Path, kept: int):
    """Cut in the length of the header, in the header, and in the weights."""
    file = write(tmp_path / "m", "model.safetensors") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    result = backbone(tmp_path / "m").result
    assert result.state == "missing" and "model.safetensors is truncated or damaged" in result.message


def test_an_empty_folder_holds_no_weights(tmp_path: Path):
    assert "holds no weights" in backbone(tmp_path).result.message


# -- the hub -----------------------------------------------------------------------------------------------------------


def test_only_loaded_files_are_fetched():
    """Neither the original checkpoint beside the parts, nor variants, nor the safety checker."""
    flux, sd15 = generator("maker/flux"), generator("maker/sd15")
    assert (flux.to_fetch, sd15.to_fetch) == (34 * GB, 4 * GB)
    assert flux.result.state == "note" and "hf download maker/flux" in flux.result.message


def test_mistral_format_is_another_file():
    assert backbone("maker/mistral").to_fetch == 49 * GB
    assert backbone("maker/mistral", "backbone.arguments.load_format=mistral").to_fetch == 48 * GB


def test_a_part_of_its_own_replaces_that_of_the_pipeline(tmp_path: Path):
    own = write(tmp_path / "own", "transformer/diffusion_pytorch_model.safetensors")
    given = ["generator.model=maker/flux", f"generator.transformer={own}"]
    pipeline, transformer = reports("generator.kind=diffusers", *given)
    assert list(pipeline.loaded) == ["text_encoder_2"] and pipeline.to_fetch == 10 * GB
    assert transformer.result.state == "ok"


def test_gated_weights_need_a_token_with_access(monkeypatch: pytest.MonkeyPatch):
    stranger = generator("maker/gated").result
    assert stranger.state == "missing" and "https://huggingface.co/maker/gated" in stranger.message
    assert "HF_TOKEN" in stranger.message
    monkeypatch.setenv("HF_TOKEN", "other")
    assert generator("maker/gated").result.state == "missing"
    monkeypatch.setenv("HF_TOKEN", "let-in")
    assert generator("maker/gated").to_fetch == 34 * GB


def test_a_refused_token_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "expired")
    result = generator("maker/flux").result
    assert result.state == "missing" and "401" in result.message and "expired" not in result.message


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("maker/nobody", "neither a folder nor a model of the hub"),
        ("maker/code", "holds no weights"),
        ("not an id", "neither a folder nor a hub id"),
        ("maker/down", "503"),
    ],
)
def test_unusable_models_are_missing(model: str, words: str):
    result = backbone(model).result
    assert result.state == "missing" and words in result.message and f"backbone.model={model!r}" in result.message


def test_an_unreachable_hub_is_named(connect: Callable[[str], None]):
    connect("http://127.0.0.1:9")
    message = backbone("maker/gemma").result.message
    assert "did not answer" in message and "hf download maker/gemma" in message


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_the_cache_is_enough_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in backbone("maker/gemma").result.message
    cached(tmp_path, "maker/gemma", "model.safetensors")
    result = backbone("maker/gemma").result
    assert result.state == "ok" and "in the cache" in result.message


def test_cached_files_are_not_fetched_again(tmp_path: Path):
    cached(tmp_path, "maker/sd15", "unet/diffusion_pytorch_model.safetensors")
    assert generator("maker/sd15").to_fetch == GB


def test_equal_files_of_an_earlier_commit_count_as_cached(tmp_path: Path, connect: Callable[[str], None]):
    """The cache names large files by their SHA-256."""
    digest = "d" * 64
    blob = tmp_path / "cache/models--maker--big/blobs" / digest
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"weights")
    sizes = {"model-00001-of-00002.safetensors": 7, "model-00002-of-00002.safetensors": GB}
    with hub({"maker/big": Repository(sizes=sizes, digests={"model-00001-of-00002.safetensors": digest})}) as served:
        connect(served)
        assert backbone("maker/big").to_fetch == GB


# -- networks of libraries ---------------------------------------------------------------------------------------------


def test_a_single_checkpoint_is_fetched_or_there(tmp_path: Path):
    answer = {"url": "https://example.org/net.pth", "bytes": GB, "path": str(tmp_path / "hub/net.pth")}
    absent = inspect_network("net", answer)
    assert absent.to_fetch == GB and "curl -L --create-dirs" in absent.result.message
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/net.pth").write_bytes(b"weights")
    present = inspect_network("net", answer)
    assert (present.to_fetch, present.result.state) == (0, "ok")


def test_an_unknown_network_has_near_names():
    result = inspect_network("resnet125", {"nearest": ["resnet152", "resnet50"]}).result
    assert result.state == "missing" and "resnet152" in result.message
    assert inspect_network("resnet152", {}).result.state == "note"  # The library did not answer in time.


# -- memory and disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "expected"), [("dtype=float32", 4e6), ("dtype=float16", 2e6), ("quantize=nf4", 562_500)]
)
def test_memory_follows_the_type_of_the_loaded_weights(tmp_path: Path, setting: str, expected: float):
    folder = write(tmp_path / "m", "unet/diffusion_pytorch_model.safetensors", dtype=np.float32, count=10**6)
    report = generator(folder, f"generator.{setting}")
    assert report.loaded["unet"] == pytest.approx(expected, rel=1e-3)


def test_offload_needs_memory_for_the_largest_part():
    given = [*DIFFUSION, "generator.model=maker/flux", "pools.generator.num_gpus=1"]
    whole, offloaded = load(given), load([*given, "generator.offload=true"])
    messages = [
        next(replica_memory(config, inspect(weight_sources(config)), 0, [H100])).message
        for config in (whole, offloaded)
    ]
    assert "weights 34.0 GB" in messages[0] and "weights 24.0 GB" in messages[1]


def test_a_language_model_needs_weights_and_one_conversation():
    config = load([*LEAST, "backbone.kind=vllm", "backbone.model=maker/gemma", "pools.backbone.num_gpus=1"])
    found = inspect(weight_sources(config))
    [fits] = replica_memory(config, found, 6e9, [H100])
    assert fits.state == "ok" and "weights 54.0 GB, KV cache of one conversation 6.0 GB" in fits.message
    assert "1 x H100 is 72.0 GB" in fits.message
    config.pools.backbone.num_gpus = 0.6
    [short] = replica_memory(config, found, 6e9, [H100])
    assert short.state == "missing" and "0.6 x H100 is 43.2 GB" in short.message
    config.pools.backbone.num_gpus, config.backbone.tensor_parallel = 2, 2
    assert "is 144.0 GB" in next(replica_memory(config, found, 6e9, [H100, H100])).message


def test_replicas_on_a_cluster_are_not_compared_with_this_machine():
    config = load([*LEAST, "backbone.kind=vllm", "backbone.model=maker/gemma", "ray.address=head:6379"])
    for config.pools.backbone.num_gpus in (0.0, 0.6):
        [result] = replica_memory(config, inspect(weight_sources(config)), 6e9, [H100])
        assert result.state == "note" and result.message.endswith("KV cache of one conversation 6.0 GB)")


def test_nf4_needs_a_gpu():
    config = load([*DIFFUSION, "generator.model=maker/flux", "generator.quantize=nf4"])
    [result] = components(config)
    assert result.state == "missing" and "generator.quantize=nf4 needs a GPU" in result.message


def test_the_disk_has_to_hold_what_is_fetched():
    small, large = (WeightReport(role="target", result=ok(""), to_fetch=count) for count in (10**6, 10**18))
    [fits] = disk_space([small, small])
    assert fits.state == "ok" and "2.0 MB to be fetched" in fits.message
    [full] = disk_space([small, large])
    assert full.state == "missing" and "HF_HOME" in full.message
    assert disk_space([]) == []


def test_dictionary_of_a_layer_is_fetched_with_the_target():
    [report] = target("target.dictionaries={layer1: maker/saes#a}")
    assert (report.role, report.to_fetch) == ("target", 3 * GB)
    assert "target.dictionaries.layer1=maker/saes: 3.0 GB" in report.result.message
    [report] = target("target.dictionaries={layer1: maker/code}")
    assert report.result.state == "missing"
    assert "holds no weights" in report.result.message
