"""Weights that torchvision, timm and Hugging Face have fetched, and that nothing in them is run."""

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers
from safetensors.torch import save_file
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.networks import load
from openmaia.models.targets.networks.from_hub import load as load_from_hub
from openmaia.models.targets.networks.from_timm import load as from_timm
from openmaia.models.targets.state import weights_digest
from tests.helpers.samples import noise
from tests.helpers.traps import trap
from tests.models.targets.test_networks import agree, ask

torch.set_num_threads(1)


@pytest.fixture
def torch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where torchvision finds what it has fetched before."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    return tmp_path / "hub/checkpoints"


def test_torchvision_weights_have_labels(torch_home: Path):
    torch.manual_seed(7)
    state = torchvision.models.resnet18().state_dict()
    torch.save(state, torch_home / "resnet18-f37072fd.pth")
    network = load("resnet18")
    assert weights_digest(network.module.state_dict().items()) == weights_digest(state.items())
    assert network.labels[282] == "tiger cat"


def test_pickle_instead_of_torchvision_weights_is_not_run(torch_home: Path, tmp_path: Path):
    content, sprung = trap(tmp_path)
    torch.save(content, torch_home / "resnet18-f37072fd.pth")
    with pytest.raises(UsageError, match="its weights cannot be loaded"):
        load("resnet18")
    assert not sprung.exists()


@pytest.mark.parametrize("content", [b"", b"x", b"<html>", b"\x80\x02K\x01.", b"\x80\x02X"])
def test_damaged_weights_of_torchvision_are_named(torch_home: Path, content: bytes):
    (torch_home / "resnet18-f37072fd.pth").write_bytes(content)
    with pytest.raises(UsageError, match="its weights cannot be loaded"):
        load("resnet18")


def test_unreachable_weights_name_the_option(torch_home: Path):
    with pytest.raises(UsageError, match="give it as target.weights"):
        load("resnet18")


def local_timm(folder: Path) -> str:
    config = {
        "architecture": "convnext_atto",
        "num_classes": 3,
        "model_args": {"depths": [1, 1, 1, 1], "dims": [8, 8, 8, 8]},
    }
    (folder / "config.json").write_text(
        json.dumps(config | {"pretrained_cfg": {"input_size": [3, 64, 64], "num_classes": 3}})
    )
    return f"local-dir:{folder}"


def test_timm_weights_are_loaded(tmp_path: Path):
    torch.manual_seed(7)
    made: nn.Module = timm.create_model("convnext_atto", num_classes=3, depths=(1, 1, 1, 1), dims=(8, 8, 8, 8))
    name = local_timm(tmp_path)
    save_file(made.state_dict(), tmp_path / "model.safetensors")
    network = from_timm(name, pretrained=True)
    assert weights_digest(network.module.state_dict().items()) == weights_digest(made.state_dict().items())
    assert network.preprocess.size == (64, 64)


def test_pickle_instead_of_timm_weights_is_not_run(tmp_path: Path):
    content, sprung = trap(tmp_path)
    name = local_timm(tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match="cannot be loaded"):
        from_timm(name, pretrained=True)
    assert not sprung.exists()


def hub_folder(folder: Path, classes: int = 3) -> transformers.PreTrainedModel:
    torch.manual_seed(7)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    config.num_labels = classes
    model = transformers.ViTForImageClassification(config)
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return model


def test_hugging_face_folder_keeps_its_preprocessing(tmp_path: Path):
    model, image = hub_folder(tmp_path).eval(), noise(4, 60, 90)
    network = load(f"hf:{tmp_path}")
    processor: Any = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    with torch.no_grad():
        outputs: Any = model(
            torch.as_tensor(network.preprocess.tensor(network.preprocess.view(image.pixels)[0]))[None],
            output_hidden_states=True,
        )
    expected = outputs.hidden_states[1][0, 1:].T.reshape(16, 4, 4)
    reader = NetworkTarget(
        "net",
        network,
        ["vit.layers.0" if "vit.layers.0" in dict(model.named_modules()) else "vit.encoder.layer.0", "output"],
    )
    layer = next(iter(reader.info().layers))
    agree(ask(reader, layer, 5, image), expected[5])
    assert ask(reader, "output", 1, image).raw == pytest.approx(float(outputs.logits[0, 1]), rel=1e-3)
    assert network.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert network.preprocess.squash
    assert processor.size["height"] == network.preprocess.size[0]


def test_missing_pooler_is_allowed_missing_head_is_not(tmp_path: Path):
    model: Any = hub_folder(tmp_path)
    model.vit.save_pretrained(tmp_path)
    network = load(f"hf:{tmp_path}")
    assert network.output is OutputMeaning.VALUES
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["ViTForImageClassification"]}))
    with pytest.raises(UsageError, match="has no weights for classifier"):
        load(f"hf:{tmp_path}")


def test_pickle_instead_of_hub_weights_is_not_run(tmp_path: Path):
    hub_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    content, sprung = trap(tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load(f"hf:{tmp_path}")
    assert not sprung.exists()


def test_damaged_hub_models_are_refused(tmp_path: Path):
    hub_folder(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="model.safetensors"):
            load_from_hub(str(folder), pretrained=True)
