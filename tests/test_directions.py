"""Directions in a layer's space as units: against sums written out here."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from openmaia.errors import UsageError
from openmaia.services import Probe
from openmaia.targets.directions import ROWS, Directions, read_directions
from openmaia.targets.hooked import NetworkTarget, rounded
from openmaia.targets.preprocess import Network
from openmaia.units import Unit, select
from tests.test_targets import PREPROCESS, ask, fitting, numbers, small

WEIGHT = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
BIAS = torch.randn(7, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def dictionary(tmp_path: Path) -> str:
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT, "bias": BIAS}, path, metadata={"activation": "relu"})
    return path


def target(layer: str, path: str, *layers: str) -> NetworkTarget:
    network = Network(module=small(), preprocess=PREPROCESS)
    return NetworkTarget("net", network, layers, directions={layer: path})


def conv_map() -> np.ndarray:
    with torch.no_grad():
        return small().conv(numbers(fitting()))[0].numpy().astype(np.float64)


def test_a_direction_responds_with_its_sum_over_channels_at_every_position(dictionary: str):
    reader, channels = target("conv", dictionary), conv_map()
    for unit in range(7):
        expected = np.zeros(channels.shape[1:])
        for channel in range(5):
            expected += float(WEIGHT[unit, channel]) * channels[channel]
        expected = np.maximum(expected + float(BIAS[unit]), 0)
        found = ask(reader, "conv/directions", unit, fitting())
        assert found.map is not None
        assert found.map.shape == (15, 23)
        assert np.allclose(found.map, expected, atol=1e-5)
        assert found.value == pytest.approx(expected.max(), rel=1e-4)


def test_without_bias_and_activation_a_direction_is_linear(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT}, path)
    found = ask(target("conv", path), "conv/directions", 3, fitting())
    assert found.map is not None
    assert np.allclose(found.map, np.tensordot(WEIGHT[3].double().numpy(), conv_map(), 1), atol=1e-5)
    assert found.map.min() < 0


def test_directions_of_a_layer_without_space_have_a_value_and_no_map(dictionary: str):
    reader = target("pool", dictionary, "pool")
    channels = np.array([ask(reader, "pool", channel, fitting()).value for channel in range(5)])
    found = ask(reader, "pool/directions", 2, fitting())
    assert found.map is None
    assert found.value == pytest.approx(max(float(WEIGHT[2].numpy() @ channels + float(BIAS[2])), 0), abs=1e-3)


def test_the_layers_own_units_stay_beside_its_directions(dictionary: str):
    reader = target("conv", dictionary, "fc", "conv")
    assert dict(reader.info().layers) == {"fc": 4, "conv": 5, "conv/directions": 7}
    assert ask(reader, "conv", 1, fitting()).value == rounded(conv_map()[1].max())


def test_directions_need_no_layer_of_their_own(dictionary: str):
    assert dict(target("conv", dictionary).info().layers) == {"conv/directions": 7}
    assert dict(target("conv", dictionary, "conv/directions").info().layers) == {"conv/directions": 7}


def test_a_direction_is_chosen_like_any_unit(dictionary: str):
    info = target("conv", dictionary).info()
    assert [unit.index for unit in select("conv/directions=2,4-5", info).units] == [2, 4, 5]


def test_all_directions_together_are_exactly_each_one_alone():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2 * ROWS + 3, 64, generator=generator)
    of = Directions(layer="x", weight=weight, bias=torch.zeros(len(weight)), rectified=False)
    response = torch.randn(64, 7, 7, generator=generator).numpy()
    together = of.all(response)
    assert together.shape == (2 * ROWS + 3, 7, 7)
    for unit in (0, 1, ROWS - 1, ROWS, 2 * ROWS + 2):
        assert rounded(together[unit].max()) == rounded(of.unit(response, unit).max())
        assert np.allclose(together[unit], of.unit(response, unit), rtol=1e-6)


def test_exemplars_are_taken_from_what_probes_answer(dictionary: str):
    reader = target("conv", dictionary)
    ((_, responses),) = reader.look([fitting().pixels])
    assert responses["conv/directions"].shape == (7, 15, 23)
    assert rounded(responses["conv/directions"][4].max()) == ask(reader, "conv/directions", 4, fitting()).value


def test_a_large_dictionary_is_not_kept_with_every_picture(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": torch.ones(4096, 5)}, path)
    reader = target("conv", path)
    for seed in range(3):
        reader.probe([Probe(unit=Unit(target="net", layer="conv/directions", index=4095), picture=fitting(seed))])
    assert reader._cached_bytes == 3 * 5 * 15 * 23 * 4


def test_other_directions_have_another_digest(dictionary: str, tmp_path: Path):
    other = str(tmp_path / "other.safetensors")
    save_file({"weight": WEIGHT, "bias": BIAS + 1}, other, metadata={"activation": "relu"})
    linear = str(tmp_path / "linear.safetensors")
    save_file({"weight": WEIGHT, "bias": BIAS}, linear)
    plain = NetworkTarget("net", Network(module=small(), preprocess=PREPROCESS), ["conv"])
    digests = {target("conv", path, "conv").info().digest for path in (dictionary, other, linear)}
    assert len(digests | {plain.info().digest}) == 4


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": torch.ones(3, 4)}, r"`weight` is \(3, 4\) .* 5 channels"),
        ({"weight": torch.ones(5)}, r"`weight` is \(5,\)"),
        ({"weight": torch.ones(3, 5, dtype=torch.int64)}, "of floats"),
        ({"weight": torch.ones(0, 5)}, r"\(0, 5\)"),
        ({"weight": torch.ones(3, 5), "bias": torch.ones(5)}, r"`bias` is \(5,\); expected \(3,\)"),
        ({"decoder": torch.ones(3, 5)}, "no tensor `weight`.*decoder"),
    ],
)
def test_directions_that_do_not_fit_are_the_users_mistake(
    tensors: dict[str, torch.Tensor], message: str, tmp_path: Path
):
    path = str(tmp_path / "d.safetensors")
    save_file(tensors, path)
    with pytest.raises(UsageError, match=message) as caught:
        target("conv", path)
    assert caught.value.message.startswith("target.directions: conv=")


def test_a_file_that_is_missing_or_damaged_is_named(tmp_path: Path):
    (tmp_path / "d.safetensors").write_bytes(b"\x08\0\0\0")
    for name in ("d.safetensors", "nowhere.safetensors"):
        with pytest.raises(UsageError, match=name):
            read_directions("conv", str(tmp_path / name), 5)


def test_an_activation_that_is_not_known_is_refused(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT}, path, metadata={"activation": "topk"})
    with pytest.raises(UsageError, match="activation='topk'"):
        read_directions("conv", path, 5)


def test_directions_of_a_layer_that_does_not_exist_name_the_nearest(dictionary: str):
    with pytest.raises(UsageError, match="did you mean 'conv'"):
        target("convv", dictionary)
