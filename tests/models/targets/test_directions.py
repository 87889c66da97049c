"""Directions in a layer's space as units: against sums written out here."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from openmaia.core.errors import UsageError
from openmaia.core.selection import select
from openmaia.core.services import Probe
from openmaia.core.units import Unit
from openmaia.models.targets.directions import ROWS, Directions, read_directions
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import TargetNetwork
from openmaia.models.targets.responses import rounded
from tests.helpers.looking import look
from tests.models.targets.test_targets import PREPROCESS, ask, fitting, numbers, small

WEIGHT = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
BIAS = torch.randn(7, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def dictionary(tmp_path: Path) -> str:
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT, "bias": BIAS}, path, metadata={"activation": "relu"})
    return path


def target(layer: str, path: str, *layers: str) -> NetworkTarget:
    network = TargetNetwork(module=small(), preprocess=PREPROCESS)
    return NetworkTarget("net", network, layers, directions={layer: path})


def conv_map() -> np.ndarray:
    with torch.no_grad():
        return small().conv(numbers(fitting()))[0].numpy().astype(np.float64)


def test_direction_is_a_weighted_sum_of_channels(dictionary: str):
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


def test_direction_is_linear_by_default(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT}, path)
    found = ask(target("conv", path), "conv/directions", 3, fitting())
    assert found.map is not None
    assert np.allclose(found.map, np.tensordot(WEIGHT[3].double().numpy(), conv_map(), 1), atol=1e-5)
    assert found.map.min() < 0


def test_directions_of_a_vector_layer_have_no_map(dictionary: str):
    reader = target("pool", dictionary, "pool")
    channels = np.array([ask(reader, "pool", channel, fitting()).value for channel in range(5)])
    found = ask(reader, "pool/directions", 2, fitting())
    assert found.map is None
    assert found.value == pytest.approx(max(float(WEIGHT[2].numpy() @ channels + float(BIAS[2])), 0), abs=1e-3)


def test_layer_units_stay_beside_directions(dictionary: str):
    reader = target("conv", dictionary, "fc", "conv")
    assert dict(reader.info().layers) == {"fc": 4, "conv": 5, "conv/directions": 7}
    assert ask(reader, "conv", 1, fitting()).value == rounded(conv_map()[1].max())


def test_directions_need_not_be_listed_as_layers(dictionary: str):
    assert dict(target("conv", dictionary).info().layers) == {"conv/directions": 7}
    assert dict(target("conv", dictionary, "conv/directions").info().layers) == {"conv/directions": 7}


def test_direction_is_selected_like_a_unit(dictionary: str):
    info = target("conv", dictionary).info()
    assert [unit.index for unit in select("conv/directions=2,4-5", info).units] == [2, 4, 5]


def test_all_directions_equal_single_ones():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2 * ROWS + 3, 64, generator=generator)
    of = Directions(layer="x", weight=weight, bias=torch.zeros(len(weight)), rectified=False)
    response = torch.randn(64, 7, 7, generator=generator)
    together = of.all(response[None])[0].numpy()
    assert together.shape == (2 * ROWS + 3, 7, 7)
    for unit in (0, 1, ROWS - 1, ROWS, 2 * ROWS + 2):
        assert rounded(together[unit].max()) == rounded(of.unit(response, unit).max())
        assert np.allclose(together[unit], of.unit(response, unit), rtol=1e-6)


def test_exemplars_of_directions_equal_probes(dictionary: str):
    reader = target("conv", dictionary)
    ((_, responses),) = look(reader, [fitting().pixels])
    assert responses["conv/directions"].shape == (7, 15, 23)
    assert rounded(responses["conv/directions"][4].max()) == ask(reader, "conv/directions", 4, fitting()).value


def test_directions_are_not_cached(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": torch.ones(4096, 5)}, path)
    reader = target("conv", path)
    for seed in range(3):
        reader.probe([Probe(unit=Unit(target="net", layer="conv/directions", index=4095), image=fitting(seed))])
    assert reader._recent.nbytes == 3 * 5 * 15 * 23 * 4


def test_digest_depends_on_directions(dictionary: str, tmp_path: Path):
    other = str(tmp_path / "other.safetensors")
    save_file({"weight": WEIGHT, "bias": BIAS + 1}, other, metadata={"activation": "relu"})
    linear = str(tmp_path / "linear.safetensors")
    save_file({"weight": WEIGHT, "bias": BIAS}, linear)
    plain = NetworkTarget("net", TargetNetwork(module=small(), preprocess=PREPROCESS), ["conv"])
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
def test_mismatched_directions_are_refused(tensors: dict[str, torch.Tensor], message: str, tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file(tensors, path)
    with pytest.raises(UsageError, match=message) as caught:
        target("conv", path)
    assert caught.value.message.startswith("target.directions: conv=")


def test_unreadable_directions_are_refused(tmp_path: Path):
    (tmp_path / "d.safetensors").write_bytes(b"\x08\0\0\0")
    for name in ("d.safetensors", "nowhere.safetensors"):
        with pytest.raises(UsageError, match=name):
            read_directions("conv", str(tmp_path / name), 5)


def test_unknown_activation_is_refused(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT}, path, metadata={"activation": "topk"})
    with pytest.raises(UsageError, match="activation='topk'"):
        read_directions("conv", path, 5)


def test_directions_of_unknown_layer_name_the_nearest(dictionary: str):
    with pytest.raises(UsageError, match="did you mean 'conv'"):
        target("convv", dictionary)
