"""Checkpoints of the user's own."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import load
from openmaia.models.targets.networks.checkpoint import load_checkpoint
from openmaia.models.targets.state import weights_digest
from tests.helpers.traps import trap

torch.set_num_threads(1)


def four_classes() -> dict[str, torch.Tensor]:
    torch.manual_seed(9)
    return torchvision.models.resnet18(num_classes=4).state_dict()


@pytest.mark.parametrize("wrapped", ["plain", "state_dict", "model", "module.", "_orig_mod.", "both"])
def test_checkpoint_sets_the_number_of_classes(wrapped: str, tmp_path: Path):
    state = four_classes()
    prefix = {"module.": "module.", "_orig_mod.": "_orig_mod.", "both": "module.model."}.get(wrapped, "")
    content: Any = {prefix + name: tensor for name, tensor in state.items()}
    if wrapped in ("state_dict", "model", "both"):
        content = {"model" if wrapped == "model" else "state_dict": content, "epoch": 3, "optimizer": {"lr": 0.1}}
    torch.save(content, tmp_path / "w.pth")
    network = load("resnet18", str(tmp_path / "w.pth"))
    assert weights_digest(network.module.state_dict().items()) == weights_digest(state.items())
    assert dict(NetworkTarget("net", network, ["output"]).info().layers) == {"output": 4}
    assert network.labels == ()


def test_safetensors_are_read(tmp_path: Path):
    save_file(four_classes(), tmp_path / "w.safetensors")
    network = load("resnet18", str(tmp_path / "w.safetensors"))
    assert weights_digest(network.module.state_dict().items()) == weights_digest(four_classes().items())


def test_head_of_the_checkpoint_is_adopted(tmp_path: Path):
    torch.manual_seed(9)
    arguments: dict[str, Any] = {"num_classes": 5}
    state = timm.create_model("vit_tiny_patch16_224.augreg_in21k", **arguments).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    module = load("timm:vit_tiny_patch16_224", str(tmp_path / "w.safetensors")).module
    assert weights_digest(module.state_dict().items()) == weights_digest(state.items())
    bare: nn.Module = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    load_checkpoint(bare, str(tmp_path / "w.safetensors"))
    assert bare(torch.zeros(1, 3, 224, 224)).shape == (1, 5)


def test_pickle_with_code_is_refused(tmp_path: Path):
    content, sprung = trap(tmp_path)
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UsageError, match="nothing of it was run"):
        load("resnet18", str(tmp_path / "w.pth"))
    assert not sprung.exists()
    torch.load(tmp_path / "w.pth", weights_only=False)
    assert sprung.exists()


def test_pickled_network_is_refused(tmp_path: Path):
    torch.save(nn.Linear(2, 2), tmp_path / "w.pt")
    with pytest.raises(UsageError, match="Save the state_dict alone"):
        load("resnet18", str(tmp_path / "w.pt"))


def test_other_architecture_is_refused(tmp_path: Path):
    torch.save(torchvision.models.resnet34().state_dict(), tmp_path / "w.pth")
    with pytest.raises(UsageError) as caught:
        load("resnet18", str(tmp_path / "w.pth"))
    assert caught.value.message.startswith("target.weights=")
    assert "unexpected: layer1.2.conv1.weight, " in caught.value.message
    save_file(four_classes(), tmp_path / "w.safetensors")
    with pytest.raises(UsageError) as caught:
        load("mobilenet_v3_small", str(tmp_path / "w.safetensors"))
    assert "missing: features.0.0.weight, " in caught.value.message
    assert " more" in caught.value.message


def test_other_width_names_both_shapes(tmp_path: Path):
    state = four_classes()
    state["layer2.0.conv1.weight"] = torch.zeros(128, 32, 3, 3)
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"layer2.0.conv1.weight \(128, 32, 3, 3\) instead of \(128, 64, 3, 3\)"):
        load("resnet18", str(tmp_path / "w.safetensors"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.pth", b"not weights", "target.weights"),
        ("w.pth", b"", "target.weights"),
        ("w.pth", b"PK\x03\x04half a zip", "target.weights"),
        ("w.h5", b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    ],
)
def test_unreadable_checkpoint_is_refused(name: str, content: bytes, message: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load("resnet18", str(tmp_path / name))


@pytest.mark.parametrize("content", [{}, [1], {"a": 1}, {1: torch.zeros(3)}, {"state_dict": {}}, torch.zeros(3)])
def test_file_without_state_dict_is_refused(content: Any, tmp_path: Path):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UsageError, match="holds no state_dict"):
        load("resnet18", str(tmp_path / "w.pt"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: torch.full_like(w, torch.nan), "not finite: layer2.0.conv1.weight"),
        (lambda w: (w * 100).to(torch.int8), "of the type int8: layer2.0.conv1.weight"),
        (lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.qint8), "not stored as plain numbers: layer2.0.conv1"),
        (lambda w: w.to("meta"), "not stored as plain numbers: layer2.0.conv1"),
    ],
)  # fmt: skip
def test_weights_that_are_no_finite_numbers_are_refused(change: Any, message: str, tmp_path: Path):
    state = four_classes()
    state["layer2.0.conv1.weight"] = change(state["layer2.0.conv1.weight"])
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(UsageError, match=message):
        load("resnet18", str(tmp_path / "w.pth"))


def test_old_densenet_names_are_converted(tmp_path: Path):
    torch.manual_seed(9)
    state = torchvision.models.densenet121(num_classes=2).state_dict()
    old = {
        name.replace("norm1.", "norm.1.").replace("conv2.", "conv.2.") if "denselayer" in name else name: tensor
        for name, tensor in state.items()
    }
    assert set(old) != set(state)
    torch.save(old, tmp_path / "w.pth")
    module = load("densenet121", str(tmp_path / "w.pth")).module
    assert weights_digest(module.state_dict().items()) == weights_digest(state.items())
