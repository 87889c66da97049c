"""Checkpoints of the user's own."""

import argparse
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


def digest(module: nn.Module) -> str:
    return weights_digest(module.state_dict().items())


class Small(nn.Module):
    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 2)


def loaded(content: Any, folder: Path, part: str = "", into: nn.Module | None = None) -> nn.Module:
    torch.save(content, folder / "w")
    module = into or Small(9)
    load_checkpoint(module, f"{folder / 'w'}{part}")
    return module


def below(prefix: str, seed: int = 0) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in Small(seed).state_dict().items()}


@pytest.mark.parametrize("name", ["w.pth.tar", "w.ckpt", "w", "w.safetensors"])
def test_checkpoint_is_read_by_its_content(name: str, tmp_path: Path):
    torch.save({"state_dict": below("module.")}, tmp_path / name)
    module = Small(9)
    load_checkpoint(module, str(tmp_path / name))
    assert digest(module) == digest(Small())


@pytest.mark.parametrize(
    "content",
    [
        {"net": below("")},
        {"model_ema": below("module."), "epoch": 1},
        {"a": {"b": {"weights": below("backbone.")}}},
        {**below(""), "epoch": 3, "best": 0.5},
        {"model": below(""), "optimizer": {"exp_avg": below("", 1)}},
        {"model": below(""), "model_ema": below("")},
        {name.replace("fc.", "fc._orig_mod."): each for name, each in below("").items()},
    ],
    ids=["net", "ema", "nested", "plain values", "optimizer", "equal sets", "compiled part"],
)
def test_weights_are_found_below_any_keys(content: Any, tmp_path: Path):
    assert digest(loaded(content, tmp_path)) == digest(Small())


def test_wrapped_network_takes_plain_weights(tmp_path: Path):
    assert digest(loaded(below(""), tmp_path, into=nn.DataParallel(Small(9))).get_submodule("module")) == digest(
        Small()
    )
    assert digest(loaded(below(""), tmp_path, into=nn.Sequential(Small(9))).get_submodule("0")) == digest(Small())


def test_several_sets_of_weights_are_refused(tmp_path: Path):
    both = {"state_dict": {**below("model."), **below("ema.", 1)}}
    with pytest.raises(UsageError, match=r"'state_dict.model', 'state_dict.ema'. Say which.*w#state_dict.ema'"):
        loaded(both, tmp_path)
    assert digest(loaded(both, tmp_path, "#state_dict.model")) == digest(Small())
    assert digest(loaded(both, tmp_path, "#state_dict.ema")) == digest(Small(1))
    nested = {**below(""), "ema": below("", 1)}
    assert digest(loaded(nested, tmp_path, "#.")) == digest(Small())
    with pytest.raises(UsageError, match="holds no state_dict"):
        loaded(both, tmp_path, "#other")


def test_tensors_beside_the_weights_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    content = {"state_dict": {**below("model."), "criterion.weight": torch.ones(2)}, "mean": torch.ones(3)}
    assert digest(loaded(content, tmp_path)) == digest(Small())
    assert "the weights are those of 'state_dict.model'; tensors left out: state_dict (1), mean (1)" in caplog.text


def test_tensors_among_the_weights_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="unexpected: projector.weight"):
        loaded({"model": {**below(""), "projector.weight": torch.ones(2)}}, tmp_path)


def test_counters_of_batches_may_be_missing(tmp_path: Path):
    state = {name: each for name, each in nn.BatchNorm2d(3).state_dict().items() if "tracked" not in name}
    loaded({"model": state}, tmp_path, into=nn.BatchNorm2d(3))
    loaded({"model": {**below(""), "fc.num_batches_tracked": torch.tensor(1)}}, tmp_path)


def test_extra_state_is_loaded(tmp_path: Path):
    class Extra(Small):
        scales: Any = None

        def get_extra_state(self) -> Any:
            return self.scales

        def set_extra_state(self, state: Any) -> None:
            self.scales = state

    source = Extra()
    source.scales = {"input": {"scale": torch.tensor(2.0)}, "steps": 3}
    assert loaded({"model": source.state_dict()}, tmp_path, into=Extra(9)).scales == source.scales


def test_lazy_network_takes_the_shapes_of_a_checkpoint(tmp_path: Path):
    lazy = nn.Sequential(nn.LazyConv2d(4, 3))
    loaded(nn.Sequential(nn.Conv2d(3, 4, 3)).state_dict(), tmp_path, into=lazy)
    assert lazy[0].weight.shape == (4, 3, 3, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1", "a pointer of Git LFS"),
        (b"<!DOCTYPE html>", "a web page"),
        (b'{"weight_map": {}}', "the index of a checkpoint in several files"),
        (bytes(257) + b"ustar", "a tar archive; unpack it"),
        (b"", "is empty"),
    ],
)
def test_other_file_is_named(content: bytes, message: str, tmp_path: Path):
    (tmp_path / "w.pth").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_checkpoint(Small(), str(tmp_path / "w.pth"))


def test_torchscript_file_is_named(tmp_path: Path):
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), str(tmp_path / "w.pt"))
    with pytest.raises(UsageError, match=r"a TorchScript program; save its weights"):
        load_checkpoint(nn.Linear(2, 2), str(tmp_path / "w.pt"))


def test_refused_pickle_names_its_classes(tmp_path: Path):
    with pytest.raises(UsageError, match=r"plain values \(argparse.Namespace\)"):
        loaded({"model": below(""), "args": argparse.Namespace(lr=1)}, tmp_path)
