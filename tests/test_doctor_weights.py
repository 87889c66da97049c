"""Weights in folders, in the cache and on the hub: what is there, what has to be fetched, what cannot be had."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from openmaia.config import load
from openmaia.doctor.disk import room
from openmaia.doctor.finding import GIB, Finding
from openmaia.doctor.gpus import Card
from openmaia.doctor.hub import Hub
from openmaia.doctor.memory import of_pipeline
from openmaia.doctor.pools import fits
from openmaia.doctor.sources import sources
from openmaia.doctor.weights import Weights, look, silence
from tests.standin_hub import COMMIT, Repository, hub

LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]
GB = 10**9
H100 = Card(name="H100", total=80 * GIB, free=80 * GIB)

FLUX = {
    "model_index.json": 536,
    "flux1-dev.safetensors": 24 * GB,
    "ae.safetensors": GB // 3,
    "transformer/config.json": 378,
    "transformer/diffusion_pytorch_model-00001-of-00003.safetensors": 10 * GB,
    "transformer/diffusion_pytorch_model-00002-of-00003.safetensors": 10 * GB,
    "transformer/diffusion_pytorch_model-00003-of-00003.safetensors": 4 * GB,
    "text_encoder/model.safetensors": GB // 4,
    "text_encoder_2/model-00001-of-00002.safetensors": 5 * GB,
    "text_encoder_2/model-00002-of-00002.safetensors": 5 * GB,
    "vae/diffusion_pytorch_model.safetensors": GB // 4,
}
SD15 = {
    "v1-5-pruned.safetensors": 8 * GB,
    "unet/diffusion_pytorch_model.safetensors": 3 * GB,
    "unet/diffusion_pytorch_model.fp16.safetensors": 2 * GB,
    "unet/diffusion_pytorch_model.non_ema.bin": 3 * GB,
    "unet/diffusion_pytorch_model.bin": 3 * GB,
    "text_encoder/model.safetensors": GB,
    "safety_checker/model.safetensors": 7 * GB,
}
GEMMA_TEXT = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 62,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "hidden_size": 5376,
    "sliding_window": 1024,
}
GEMMA = {"config.json": 900} | {f"model-{n:05}-of-00012.safetensors": 54 * GB // 12 for n in range(1, 13)}
MISTRAL = {"params.json": 500, "consolidated.safetensors": 48 * GB, "model-00001-of-00001.safetensors": 48 * GB}

REPOSITORIES = {
    "maker/flux": Repository(sizes=FLUX),
    "maker/gated": Repository(sizes=FLUX, gated=True, allowed=("let-in",)),
    "maker/sd15": Repository(sizes=SD15),
    "maker/gemma": Repository(
        sizes=GEMMA, texts={"config.json": {"text_config": GEMMA_TEXT}}, dtypes={"BF16": 27 * GB, "F32": 5}
    ),
    "maker/mistral": Repository(sizes=MISTRAL),
    "maker/code": Repository(sizes={"README.md": 5, "config.json": 9}),
    "maker/down": Repository(sizes={}, status=503),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with hub(REPOSITORIES) as address:
        yield address


@pytest.fixture
def online(endpoint: str, tmp_path: Path) -> Hub:
    return Hub(endpoint=endpoint, cache=tmp_path / "cache", offline=False, token=None)


def looked(store: Hub, *overrides: str) -> list[Weights]:
    return look(list(sources(load([*LEAST, *overrides]))), store)


def drawn(store: Hub, model: str | Path, *overrides: str) -> Finding:
    """What is found of the generator's model."""
    [found] = looked(store, "generator.kind=diffusers", f"generator.diffusion.model={model}", *overrides)
    return found.finding


def spoken_by(store: Hub, model: str | Path, *overrides: str) -> Weights:
    [found] = looked(store, "backbone.kind=vllm", f"backbone.model={model}", *overrides)
    return found


def write(folder: Path, names: Mapping[str, np.dtype | type] | list[str], count: int = 1000) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            dtype = names[name] if isinstance(names, Mapping) else np.float16
            save_file({"weight": np.zeros(count, dtype)}, path)
        else:
            path.write_text("{}")
    return folder


def cached(store: Hub, repository: str, names: list[str], commit: str = COMMIT) -> Path:
    """As huggingface_hub lays it out: refs, snapshots."""
    root = store.cache / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text(commit)
    return write(root / "snapshots" / commit, names)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_with_whole_weights_is_fine(online: Hub, tmp_path: Path):
    folder = write(tmp_path / "flux", ["model_index.json", "transformer/diffusion_pytorch_model.safetensors"])
    finding = drawn(online, folder)
    assert finding.state == "ok" and "2.0 KiB in that folder" in finding.what


@pytest.mark.parametrize("kept", [4, 40, 1500])
def test_truncated_weights_are_named(online: Hub, tmp_path: Path, kept: int):
    """Cut in the length of the header, in the header, and in the weights."""
    file = write(tmp_path / "m", ["config.json", "model.safetensors"]) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    finding = spoken_by(online, tmp_path / "m").finding
    assert finding.state == "missing" and f"model.safetensors ({kept} bytes) is truncated or damaged" in finding.what
    assert "copy" in finding.remedy


def test_shards_that_the_index_names_and_that_are_not_there_are_missed(online: Hub, tmp_path: Path):
    folder = write(tmp_path / "m", ["config.json", "model-00001-of-00002.safetensors"])
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "lacks 1 files of weights: model-00002-of-00002.safetensors" in spoken_by(online, folder).finding.what


def test_a_part_without_weights_is_missed(online: Hub, tmp_path: Path):
    folder = write(tmp_path / "m", ["vae/diffusion_pytorch_model.safetensors", "vae/config.json", "unet/config.json"])
    finding = drawn(online, folder)
    assert finding.state == "missing" and "unet" in finding.what


def test_a_folder_that_is_not_there_or_empty_is_missing(online: Hub, tmp_path: Path):
    assert "is no folder" in spoken_by(online, tmp_path / "nowhere").finding.what
    (tmp_path / "empty").mkdir()
    assert "holds no weights" in spoken_by(online, tmp_path / "empty").finding.what


# -- the hub -----------------------------------------------------------------------------------------------------------


def test_only_what_is_loaded_has_to_be_fetched(online: Hub):
    """Neither the original checkpoint beside the parts, nor variants, nor the safety checker."""
    flux, sd15 = drawn(online, "maker/flux"), drawn(online, "maker/sd15")
    assert flux.state == sd15.state == "note"
    assert "32.1 GiB to be fetched" in flux.what and "hf download maker/flux" in flux.remedy
    assert "3.7 GiB to be fetched" in sd15.what


def test_mistrals_own_format_is_another_file(online: Hub):
    plain = spoken_by(online, "maker/mistral").to_fetch
    own = spoken_by(online, "maker/mistral", "backbone.vllm.arguments.load_format=mistral")
    assert plain == own.to_fetch == 48 * GB


def test_a_part_from_a_repository_of_its_own_replaces_the_pipelines(online: Hub, tmp_path: Path):
    own = write(tmp_path / "own", ["transformer/diffusion_pytorch_model.safetensors"])
    config = [
        "generator.kind=diffusers",
        "generator.diffusion.model=maker/flux",
        f"generator.diffusion.transformer={own}",
    ]
    pipeline, transformer = looked(online, *config)
    assert "transformer" not in pipeline.parts and pipeline.to_fetch < 11 * GB
    assert transformer.finding.state == "ok"


def test_gated_weights_name_the_page_and_the_token(online: Hub, endpoint: str, tmp_path: Path):
    stranger = drawn(online, "maker/gated")
    assert stranger.state == "missing" and "gated" in stranger.what
    assert "https://huggingface.co/maker/gated" in stranger.remedy and "HF_TOKEN" in stranger.remedy
    outside = drawn(Hub(endpoint=endpoint, cache=tmp_path, offline=False, token="other"), "maker/gated")
    assert outside.state == "missing" and "not been let in" in outside.what
    inside = drawn(Hub(endpoint=endpoint, cache=tmp_path, offline=False, token="let-in"), "maker/gated")
    assert inside.state == "note" and "32.1 GiB to be fetched" in inside.what


def test_a_token_that_the_hub_does_not_accept_is_said_and_not_shown(endpoint: str, tmp_path: Path):
    finding = drawn(Hub(endpoint=endpoint, cache=tmp_path, offline=False, token="expired"), "maker/flux")
    assert finding.state == "missing" and "does not accept the token" in finding.what
    assert "expired" not in finding.what + finding.remedy


def test_gated_weights_that_are_here_need_no_licence(online: Hub):
    snapshot = cached(online, "maker/gated", ["transformer/diffusion_pytorch_model.safetensors"])
    sizes = {path.relative_to(snapshot).as_posix(): path.stat().st_size for path in snapshot.rglob("*.safetensors")}
    with hub({"maker/gated": Repository(sizes=sizes, gated=True)}) as address:
        store = Hub(endpoint=address, cache=online.cache, offline=False, token=None)
        assert drawn(store, "maker/gated").state == "ok"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("maker/nobody", "is not on the hub, or private"),
        ("maker/code", "holds no weights"),
        ("not an id", "neither a folder nor a hub id"),
        ("a/b/c", "is no folder"),
    ],
)
def test_models_that_do_not_exist_are_missing(online: Hub, model: str, said: str):
    finding = spoken_by(online, model).finding
    assert finding.state == "missing" and said in finding.what and finding.remedy


def test_a_hub_that_is_down_is_one_note_and_what_is_not_here_is_missing(online: Hub):
    found = looked(online, "backbone.kind=vllm", "backbone.model=maker/down", "generator.kind=diffusers",
                   "generator.diffusion.model=maker/down")  # fmt: skip
    assert all(each.finding.state == "missing" and "not on this machine" in each.finding.what for each in found)
    [said] = silence(found, online)
    assert said.state == "note" and "cannot be reached" in said.what and "503" in said.what


def test_nobody_at_the_hubs_address_is_a_note(tmp_path: Path):
    gone = Hub(endpoint="http://127.0.0.1:9", cache=tmp_path, offline=False, token=None)
    found = looked(gone, "backbone.kind=vllm", "backbone.model=maker/gemma")
    assert "cannot be reached" in silence(found, gone)[0].what
    assert "hf download maker/gemma" in found[0].finding.remedy


def test_offline_the_hub_is_not_asked(endpoint: str, tmp_path: Path):
    store = Hub(endpoint=endpoint, cache=tmp_path, offline=True, token=None)
    found = looked(store, "backbone.kind=vllm", "backbone.model=maker/gemma")
    assert found[0].finding.state == "missing" and "HF_HUB_OFFLINE" in found[0].finding.what
    assert "HF_HUB_OFFLINE" in silence(found, store)[0].what


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_offline_the_cache_is_enough(endpoint: str, tmp_path: Path):
    store = Hub(endpoint=endpoint, cache=tmp_path, offline=True, token=None)
    cached(store, "maker/gemma", ["config.json", "model.safetensors"])
    finding = spoken_by(store, "maker/gemma").finding
    assert finding.state == "ok" and "in the Hugging Face cache" in finding.what


def test_what_is_in_the_cache_already_is_not_fetched_again(online: Hub):
    """Of another commit a file counts only while it is the same, which its SHA-256 tells."""
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    snapshot = cached(online, "maker/big", names[:1], commit="a" * 40)
    size = (snapshot / names[0]).stat().st_size
    blob = snapshot.parent.parent / "blobs" / ("d" * 64)
    blob.parent.mkdir()
    (snapshot / names[0]).rename(blob)
    (snapshot / names[0]).symlink_to(blob)
    for digest, owed in (("d" * 64, GB), ("e" * 64, GB + size)):
        repository = Repository(sizes={names[0]: size, names[1]: GB}, digests={names[0]: digest})
        with hub({"maker/big": repository}) as address:
            store = Hub(endpoint=address, cache=online.cache, offline=False, token=None)
            assert spoken_by(store, "maker/big").to_fetch == owed


def test_a_cached_file_of_another_size_than_the_hubs_is_damaged(online: Hub):
    snapshot = cached(online, "maker/gemma", list(GEMMA))
    finding = spoken_by(online, "maker/gemma").finding
    size = (snapshot / "model-00001-of-00012.safetensors").stat().st_size
    assert finding.state == "missing" and f"({size} bytes) is truncated or damaged" in finding.what
    assert finding.remedy == "hf download maker/gemma --force-download"


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_follows_the_type_the_weights_are_loaded_as(online: Hub, tmp_path: Path):
    folder = write(tmp_path / "m", {"unet/diffusion_pytorch_model.safetensors": np.float32}, count=10**6)
    given = ["generator.kind=diffusers", f"generator.diffusion.model={folder}"]
    wanted = {
        setting: of_pipeline(looked(online, *given, setting), offload=False)
        for setting in ("generator.diffusion.dtype=float32", "generator.diffusion.dtype=float16", "generator.diffusion.quantize=nf4")
    }  # fmt: skip
    assert list(wanted.values()) == [4 * 10**6, 2 * 10**6, 562_500]


def test_offload_needs_the_largest_part_only(online: Hub):
    found = looked(online, "generator.kind=diffusers", "generator.diffusion.model=maker/flux")
    assert of_pipeline(found, offload=False) == sum(found[0].parts[part].total() for part in found[0].parts)
    assert of_pipeline(found, offload=True) == 24 * GB


def test_a_language_model_wants_weights_and_one_conversation(online: Hub):
    """54 GB of weights; of 62 layers 10 keep 65536 tokens and 52 a window of 1024, 8 KiB a token and layer."""
    config = load([*LEAST, "backbone.kind=vllm", "backbone.model=maker/gemma", "backbone.context_tokens=65536",
                   "pools.backbone.num_gpus=1"])  # fmt: skip
    found = look(list(sources(config)), online)
    [finding] = fits(config, found, [H100])
    assert "weights 50.3 GiB" in finding.what and "5.4 GiB a conversation of 65536 tokens" in finding.what
    assert finding.state == "ok" and "72.0 GiB had" in finding.what and "room for about 3 full" in finding.what
    config.pools.backbone.num_gpus = 0.6
    [short] = fits(config, found, [H100])
    assert short.state == "missing" and "43.2 GiB had" in short.what and "quantization" in short.remedy
    config.pools.backbone.num_gpus, config.backbone.vllm.tensor_parallel = 2, 2
    [shared] = fits(config, found, [H100, H100])
    assert shared.state == "ok" and "144.0 GiB had" in shared.what


def test_a_pipeline_that_does_not_fit_is_told_what_would_make_it_smaller(online: Hub):
    given = [
        *LEAST,
        "generator.kind=diffusers",
        "generator.diffusion.model=maker/flux",
        "pools.generator.num_gpus=0.25",
    ]
    whole, small = load(given), load([*given, "generator.diffusion.quantize=nf4"])
    [finding] = fits(whole, look(list(sources(whole)), online), [H100])
    assert finding.state == "missing" and "nf4" in finding.remedy and "20.0 GiB had" in finding.what
    [finding] = fits(small, look(list(sources(small)), online), [H100])
    assert finding.state == "ok"


def test_the_disk_has_to_hold_what_is_fetched(tmp_path: Path):
    [fine] = room({tmp_path / "not/yet": 1 << 20, tmp_path: 1 << 20})
    assert fine.state == "ok" and "2.0 MiB to be fetched" in fine.what
    [full] = room({tmp_path: 1 << 60})
    assert full.state == "missing" and "HF_HOME" in full.remedy
    assert room({tmp_path: 0}) == []
