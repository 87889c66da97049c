"""Features of dictionaries as units: against what SAELens and dictionary_learning encode (dictionaries/make.py)."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.selection import select
from openmaia.models.targets.dictionary import Dictionary
from openmaia.models.targets.dictionary_format import all_formats, read_dictionary
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork
from openmaia.models.targets.responses import rounded
from tests.helpers.looking import dense, look
from tests.models.targets.test_targets import PREPROCESS, ask, fitting, numbers, small

MADE = Path(__file__).parent / "dictionaries"
ALL = sorted(each.parent.name for each in MADE.glob("*/expected.safetensors"))


def read(folder: Path | str, channels: int = 5) -> Dictionary:
    return read_dictionary("conv", str(folder), channels)


def target(folder: Path | str, *layers: str) -> NetworkTarget:
    network = TargetNetwork(module=small(), preprocess=PREPROCESS)
    return NetworkTarget("net", network, layers, dictionaries={"conv": str(folder)})


def changed(name: str, to: Path, **config: Any) -> Path:
    """Copies a dictionary with other values in its config."""
    folder = shutil.copytree(MADE / name, to / "changed")
    file = next(each for each in (folder / "cfg.json", folder / "config.json") if each.is_file())
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return folder


def test_all_kinds_were_made():
    assert len([name for name in ALL if name.startswith("saelens-")]) == 12
    assert len([name for name in ALL if name.startswith("learned-")]) == 7


@pytest.mark.parametrize("name", ALL)
def test_features_equal_those_of_the_library(name: str):
    expected = load_file(MADE / name / "expected.safetensors")
    found = dense(read(MADE / name).all(expected["input"]))
    assert (expected["features"] > 0).sum(dim=1).float().mean() >= 1  # or it would say little
    assert torch.allclose(found, expected["features"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_positions_are_encoded_in_parts(name: str):
    expected = load_file(MADE / name / "expected.safetensors")
    maps = torch.stack([expected["input"], expected["input"].flip(0)]).mT.unflatten(2, (4, 5))
    found = dense(read(MADE / name).all(maps, cells=12 * 3))  # three positions at a time
    assert found.shape == (2, 12, 4, 5)
    assert torch.allclose(found[1].flatten(1).mT.flip(0), expected["features"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_single_features_equal_all(name: str):
    dictionary = read(MADE / name)
    response = torch.randn(5, 7, 6, generator=torch.Generator().manual_seed(0))
    together = dense(dictionary.all(response[None]))[0]
    for unit in (0, 5, 11):
        assert np.allclose(dictionary.unit(response, unit), together[unit].numpy(), rtol=1e-6)


# With a normalisation of each input, the library's `decode` undoes it, too.
@pytest.mark.parametrize("name", [name for name in ALL if not name.endswith("-norm")])
def test_decoder_reconstructs_as_the_library(name: str):
    expected, dictionary = load_file(MADE / name / "expected.safetensors"), read(MADE / name)
    found = expected["features"] @ dictionary.decoder
    base = expected["decoded"] - found  # the bias of the decoder, of every input
    if name in ("saelens-topk-rescaled", "learned-AutoEncoder"):
        assert torch.allclose(dictionary.decoder.norm(dim=1), torch.ones(12), atol=1e-5)
    assert torch.allclose(base, base[0].expand_as(base), atol=1e-4)


@pytest.mark.parametrize("features", [1600, 1613, 4800])
def test_k_largest_of_many_features_are_those_of_a_whole_search(features: int):
    made = torch.Generator().manual_seed(4)
    encoder = torch.randn(features, 5, generator=made, dtype=torch.float64)
    zeros = torch.zeros(features, dtype=torch.float64)
    dictionary = replace(read(MADE / "saelens-topk"), encoder=encoder, bias=zeros, threshold=zeros, k=9)
    given = torch.randn(2, 5, 3, 3, generator=made)
    given[1, :, 0, 0] = float("nan")
    values = torch.einsum("fc,ichw->ifhw", encoder, given.double())
    largest = values[0].topk(9, dim=0)
    expected = torch.zeros(features, 3, 3, dtype=torch.float64).scatter(0, largest.indices, largest.values)
    found = dense(dictionary.all(given))
    assert torch.allclose(found[0], expected.float(), rtol=1e-6)
    assert int(found[1, :, 0, 0].isnan().sum()) == 9


def test_more_features_than_are_spare_may_be_too_close_for_single_precision():
    """Groups of thirty features that differ in the tenth digit, of which some are among the k largest."""
    made = torch.Generator().manual_seed(4)
    some = torch.randn(160, 1, 5, generator=made, dtype=torch.float64)
    encoder = (some * (1 + 1e-9 * torch.arange(30, dtype=torch.float64)[:, None])).flatten(0, 1)
    zeros = torch.zeros(len(encoder), dtype=torch.float64)
    dictionary = replace(read(MADE / "saelens-topk"), encoder=encoder, bias=zeros, threshold=zeros, k=9)
    assert dictionary.rough is not None
    given = torch.randn(1, 5, 3, 3, generator=made)
    values = torch.einsum("fc,chw->fhw", encoder, given[0].double())
    expected = torch.zeros_like(values).scatter(0, values.topk(9, dim=0).indices, 1.0)
    assert torch.equal(dense(dictionary.all(given))[0] > 0, expected > 0)


@pytest.mark.parametrize(("share", "channels"), [(0.001, 5), (0.2, 5), (0.001, 96)])
def test_features_above_thresholds_are_those_of_double_precision(share: float, channels: int):
    """Where few are active, which is found in single precision, and where many are, with thresholds that values in single
    precision fall on either side of."""
    made = torch.Generator().manual_seed(5)
    encoder = torch.randn(4801, channels, generator=made, dtype=torch.float64)
    bias = torch.randn(len(encoder), generator=made, dtype=torch.float64)
    given = torch.randn(2, channels, 6, 7, generator=made)
    values = torch.einsum("fc,ichw->ifhw", encoder, given.double()) + bias[:, None, None]
    sorted_values = values.movedim(1, 0).flatten(1).clamp(min=0).sort(dim=1).values
    threshold = sorted_values[:, -1 - int(share * sorted_values.shape[1])]
    threshold = threshold + 1e-12 * torch.randn(len(threshold), generator=made, dtype=torch.float64)
    threshold = threshold.clamp(min=0)
    dictionary = replace(
        read(MADE / "saelens-topk"), encoder=encoder, bias=bias, threshold=threshold, decoder=encoder.float(), k=0
    )
    assert dictionary.rough is not None
    expected = torch.where(values > threshold[:, None, None], values, 0.0)
    found = dense(dictionary.all(given))
    assert torch.equal(found > 0, expected > 0)
    assert torch.allclose(found, expected.float(), rtol=1e-6)
    given[1, :, 5, 6] = float("nan")
    again = dense(dictionary.all(given))
    assert int(again[1, :, 5, 6].isnan().sum()) == len(encoder)
    assert torch.equal(again[0], found[0])


def test_topk_leaves_k_features():
    features = dense(read(MADE / "saelens-topk").all(torch.randn(1, 5, 30, generator=torch.Generator().manual_seed(3))))
    active = (features > 0).sum(dim=1)
    assert int(active.max()) == 3


def test_features_are_units_of_a_layer_of_their_own():
    reader = target(MADE / "saelens-topk", "conv")
    assert dict(reader.info().layers) == {"conv": 5, "conv/features": 12}
    assert dict(target(MADE / "saelens-topk").info().layers) == {"conv/features": 12}
    assert dict(target(MADE / "saelens-topk", "conv/features").info().layers) == {"conv/features": 12}
    assert [unit.index for unit in select("conv/features=2,4-5", reader.info()).units] == [2, 4, 5]
    assert "conv/features: topk of SAELens, k=3, 12 features" in reader.info().understood


def test_probes_and_exemplars_equal_encoded_maps():
    reader = target(MADE / "saelens-topk")
    with torch.no_grad():
        conv = small().conv(numbers(fitting()))
    expected = dense(read(MADE / "saelens-topk").all(conv))[0].numpy()
    ((_, responses),) = look(reader, [fitting().pixels])
    assert np.allclose(responses["conv/features"], expected, atol=1e-5)
    for unit in range(12):
        found = ask(reader, "conv/features", unit, fitting())
        assert found.map is not None
        assert np.allclose(found.map, expected[unit], atol=1e-5)
        assert found.value == rounded(responses["conv/features"][unit].max())


def test_digest_depends_on_dictionary(tmp_path: Path):
    plain = NetworkTarget("net", TargetNetwork(module=small(), preprocess=PREPROCESS), ["conv"])
    folders = [MADE / "saelens-topk", MADE / "saelens-standard", changed("saelens-topk", tmp_path, k=4)]
    assert len({plain.info().digest, *(target(each, "conv").info().digest for each in folders)}) == 4


class Transformer(nn.Module):
    """Five channels at each of 3 other tokens, whose first is the class token, and of 6 patches."""

    def __init__(self, prefix: int = 3) -> None:
        super().__init__()
        self.patches, self.block = nn.Conv2d(3, 5, 16, stride=16), nn.Identity()
        self.register_buffer("others", torch.randn(1, prefix, 5, generator=torch.Generator().manual_seed(5)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).mT
        others = self.get_buffer("others") + x.mean()
        return self.block(torch.cat([others.expand(len(x), -1, -1), patches], dim=1))[:, 0]


def tokens(which: Any, prefix: int = 3) -> tuple[NetworkTarget, torch.Tensor]:
    """Returns the target, and the features at all tokens for the picture, shape (features, tokens)."""
    torch.manual_seed(0)
    module = Transformer(prefix).eval()
    preprocess = Preprocess(size=(32, 48), crop=1.0, resample=PREPROCESS.resample, mean=(0.5,) * 3, std=(0.5,) * 3)
    network = TargetNetwork(module=module, preprocess=preprocess)
    reader = NetworkTarget("net", network, [], dictionaries={"block": str(MADE / "saelens-standard")}, tokens=which)
    caught: list[Any] = []
    module.block.register_forward_hook(lambda _m, _i, output: caught.append(output))
    with torch.no_grad():
        module(preprocess.tensor(fitting().pixels)[None])
    return reader, dense(read(MADE / "saelens-standard").all(caught[0].mT))[0]


@pytest.mark.parametrize(("which", "chosen"), [("class", slice(0, 1)), ("all", slice(None)), ("patches", slice(3, 9))])
def test_features_are_computed_at_the_tokens_that_were_asked_for(which: str, chosen: slice):
    reader, expected = tokens(which)
    wanted = expected[:, chosen].amax(dim=1).numpy()
    found = [ask(reader, "block/features", unit, fitting()) for unit in range(12)]
    assert np.allclose([each.value for each in found], wanted, rtol=1e-4, atol=1e-5)
    assert [each.map is not None for each in found] == [which == "patches"] * 12
    ((_, responses),) = look(reader, [fitting().pixels])
    of = responses["block/features"]
    assert np.allclose(of.reshape(12, -1).max(axis=1), wanted, rtol=1e-4, atol=1e-5)


def test_digest_depends_on_tokens():
    assert len({tokens(which)[0].info().digest for which in ("patches", "class", "all")}) == 3


def test_tokens_that_a_layer_lacks_are_refused():
    network = TargetNetwork(module=small(), preprocess=PREPROCESS)
    with pytest.raises(UsageError, match="'conv' has no tokens; its axes are units, rows, columns"):
        NetworkTarget("net", network, [], dictionaries={"conv": str(MADE / "saelens-topk")}, tokens="class")
    with pytest.raises(UsageError, match="tokens=class: no token of layer 'block'"):
        tokens("class", prefix=0)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("saelens-standard", {"architecture": "transcoder"}, "architecture='transcoder'; expected standard, topk"),
        ("saelens-standard", {"architecture": ["topk"]}, r"architecture=\['topk'\]"),
        ("saelens-standard", {"architecture": "gated"}, "the tensors W_dec, W_enc, b_dec, b_enc; expected .*b_gate"),
        ("saelens-standard", {"normalize_activations": "expected_average_only_in"}, "statistics are not in the files"),
        ("saelens-standard", {"normalize_activations": True}, "normalize_activations=True"),
        ("saelens-standard", {"normalize_activations": ["none"]}, r"normalize_activations=\['none'\]"),
        ("saelens-standard", {"activation_fn_str": "tanh-relu"}, "activation_fn='tanh-relu'; expected relu or topk"),
        ("saelens-standard", {"finetuning_scaling_factor": True}, "finetuning_scaling_factor"),
        ("saelens-jumprelu", {"rescale_acts_by_decoder_norm": True}, "architecture=jumprelu does not know"),
        ("saelens-topk", {"k": None}, "k=None; expected a whole number"),
        ("saelens-topk", {"k": 13}, "k=13, and 12 features"),
        ("learned-AutoEncoder", {"trainer": {"dict_class": "CrossCoder"}}, "dict_class='CrossCoder'; expected AutoEnc"),
        ("learned-AutoEncoder", {"trainer": None}, "dict_class=None"),
        ("learned-AutoEncoder", {"trainer": {"dict_class": ["AutoEncoder"]}}, r"dict_class=\['AutoEncoder'\]"),
    ],
)
def test_what_is_not_understood_is_refused(name: str, config: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(UsageError, match=message) as caught:
        read(changed(name, tmp_path, **config))
    assert caught.value.message.startswith("target.dictionaries: conv=")


def test_topk_of_an_old_saelens_is_read_as_topk(tmp_path: Path):
    folder = changed("saelens-topk", tmp_path, k=None, architecture="standard")
    file = folder / "cfg.json"
    config = {**json.loads(file.read_text()), "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 3}}
    file.write_text(json.dumps(config))
    assert read(folder).k == 3


def test_dictionary_of_another_layer_is_refused():
    with pytest.raises(UsageError, match=r"12 features of 5 channels, and layer 'conv' has 7"):
        read(MADE / "saelens-topk", 7)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path):
    folder = changed("saelens-topk", tmp_path)
    weights = load_file(folder / "sae_weights.safetensors")
    save_file({**weights, "b_enc": torch.full((12,), torch.nan)}, folder / "sae_weights.safetensors")
    with pytest.raises(UsageError, match="its bias is .* expected .* of finite floats"):
        read(folder)
    save_file({**weights, "b_dec": torch.zeros(12)}, folder / "sae_weights.safetensors")
    with pytest.raises(UsageError, match=r"its offset is \(12,\)"):
        read(folder)
    (folder / "sae_weights.safetensors").write_bytes(b"\x08\0\0\0")
    with pytest.raises(UsageError, match="cannot be read as safetensors"):
        read(folder)


def test_position_without_any_value_has_no_features_of_a_norm():
    dictionary = read(MADE / "saelens-constant-norm")
    assert bool(dictionary.all(torch.zeros(1, 5, 2)).values.isfinite().all())


def test_threshold_that_no_training_set_is_refused(tmp_path: Path):
    folder = changed("learned-BatchTopKSAE", tmp_path)
    state = torch.load(folder / "ae.pt", weights_only=True)
    torch.save({**state, "threshold": torch.tensor(-1.0)}, folder / "ae.pt")
    with pytest.raises(UsageError, match="no training has set it"):
        read(folder)


class Hostile:
    """Would write a file if it was unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_code_in_a_pickle_is_not_run(tmp_path: Path):
    folder = changed("learned-AutoEncoder", tmp_path)
    hostile = {"bias": Hostile(tmp_path / "ran")}
    for save in (
        lambda file: torch.save(hostile, file),
        lambda file: file.write_bytes(pickle.dumps(hostile, protocol=2)),
    ):
        save(folder / "ae.pt")
        with pytest.raises(UsageError, match="more than tensors, and nothing of it was run"):
            read(folder)
    assert not (tmp_path / "ran").exists()


def test_folder_without_a_dictionary_says_what_it_has(tmp_path: Path):
    (tmp_path / "model.bin").touch()
    with pytest.raises(UsageError, match="it has model.bin; expected config.json and ae.pt of dictionary_learning"):
        read(tmp_path)


def test_dictionary_in_a_folder_of_a_repository_is_found():
    assert read(f"{MADE}#saelens-topk").k == 3


PRISMA = {
    "architecture": "standard", "activation_fn_str": "relu", "activation_fn_kwargs": {}, "normalize_activations": None,
    "is_transcoder": False, "hook_point_layer": 9, "layer_subtype": "hook_mlp_out", "cls_token_only": True,
}  # fmt: skip


def prisma(folder: Path, **config: Any) -> tuple[Path, dict[str, torch.Tensor]]:
    """Saves a dictionary of ViT-Prisma. Its library is not on PyPI: what is expected is computed from its weights."""
    generator = torch.Generator().manual_seed(0)
    gates = {"b_gate": 12, "b_mag": 12, "r_mag": 12} if config.get("architecture") == "gated" else {}
    shapes = {"W_enc": (5, 12), "W_dec": (12, 5), "b_dec": 5, "b_enc": 12, **gates}
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    folder.mkdir(exist_ok=True)
    torch.save(tensors, folder / "weights.pt")
    (folder / "config.json").write_text(json.dumps({**PRISMA, **config}))
    return folder, tensors


def test_features_of_vit_prisma_follow_from_the_weights(tmp_path: Path):
    given = torch.randn(1, 5, 30, generator=torch.Generator().manual_seed(1))
    for name, config in (
        ("relu", {}),
        ("topk", {"activation_fn_str": "topk", "activation_fn_kwargs": {"k": 3}}),
        ("norm", {"normalize_activations": "layer_norm"}),
        ("gated", {"architecture": "gated"}),
    ):
        folder, t = prisma(tmp_path / name, **config)
        x = given[0].T
        if name == "norm":
            x = (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-5)
        h = (x - t["b_dec"]) @ t["W_enc"]
        expected = torch.relu(h + t["b_enc"])
        if name == "gated":
            expected = torch.relu(h * t["r_mag"].exp() + t["b_mag"]) * (h + t["b_gate"] > 0)
        if name == "topk":
            expected *= expected >= expected.topk(3).values[:, -1:]
        assert torch.allclose(dense(read(folder).all(given))[0].T, expected, rtol=1e-5, atol=1e-5), name


def test_hook_point_and_tokens_of_vit_prisma_are_said(tmp_path: Path):
    folder, _ = prisma(tmp_path / "prisma")
    assert read(folder).description.endswith("trained at 'blocks.9.hook_mlp_out of the class token'")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"is_transcoder": True}, "is_transcoder"),
        ({"architecture": "jumprelu"}, "architecture='jumprelu'; expected standard, gated"),
        ({"activation_fn_str": "tanh-relu"}, "activation_fn_str='tanh-relu'; expected relu"),
        ({"activation_fn_str": "topk"}, "k=None; expected a whole number"),
        ({"normalize_activations": "expected_average_only_in"}, "statistics are not in the files"),
    ],
)
def test_what_is_not_understood_of_vit_prisma_is_refused(config: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(UsageError, match=message):
        read(prisma(tmp_path / "prisma", **config)[0])


@pytest.mark.parametrize("key", ["normalize_activations", "activation_fn_str"])
def test_key_whose_default_changed_is_required(key: str, tmp_path: Path):
    folder, _ = prisma(tmp_path / "prisma")
    config = {name: value for name, value in PRISMA.items() if name != key}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=f"its config.json lacks {key}"):
        read(folder)


def test_prisma_weights_with_a_pickled_config_are_refused(tmp_path: Path):
    folder, tensors = prisma(tmp_path / "prisma")
    torch.save({"cfg": Hostile(tmp_path / "ran"), "state_dict": tensors}, folder / "weights.pt")
    with pytest.raises(UsageError, match="more than tensors, and nothing of it was run"):
        read(folder)
    assert not (tmp_path / "ran").exists()


def test_each_format_is_found_once():
    libraries = [each.library for each in all_formats()]
    assert libraries == ["dictionary_learning", "SAELens", "ViT-Prisma"]
