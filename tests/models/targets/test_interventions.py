"""Units scaled in the forward pass: against networks whose weights are changed instead."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.services import Intervention
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork
from tests.helpers.samples import noise

PREPROCESS = Preprocess(size=(32, 48), crop=1, resample=Image.Resampling.BICUBIC, mean=(0.5,) * 3, std=(0.5,) * 3)
IMAGE = noise(1, 32, 48)


class Classifier(nn.Module):
    """Maps, an in-place activation, maps with units last, a vector of shape (units, 1, 1), a tuple, and logits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 5, 3, stride=2)
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.LayerNorm(5)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.both = Both()
        self.fc = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.last(self.relu(self.conv(x)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.fc(self.both(self.pool(maps).flatten(1))[0])


class Both(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 1, x * 2


class Tokens(nn.Module):
    """A class token and patches, of which both reach the logits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.block, self.head = nn.Conv2d(3, 6, 8, stride=8), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.block(torch.cat([tokens.mean(1, keepdim=True), tokens], dim=1)).mean(1))


def target(module: nn.Module, *layers: str, output: OutputMeaning | None = None) -> NetworkTarget:
    network = TargetNetwork(module=module.eval(), preprocess=PREPROCESS, output=output, labels=tuple("abcd"))
    return NetworkTarget("net", network, layers)


def scaled(reader: NetworkTarget, layer: str, index: int, factor: float) -> np.ndarray:
    unit = Unit(target="net", layer=layer, index=index)
    return reader.intervene([Intervention(unit=unit, image=IMAGE, factor=factor)])[0]


def expected(module: nn.Module) -> np.ndarray:
    tensor = PREPROCESS.tensor(PREPROCESS.view(IMAGE.pixels)[0])[None]
    with torch.inference_mode():
        return torch.log_softmax(module.eval()(tensor).double(), dim=1)[0].numpy()


def changed(module: nn.Module, name: str, index: int, factor: float) -> nn.Module:
    """A copy whose layer has the weights of one unit multiplied."""
    other = copy.deepcopy(module)
    layer = other.get_submodule(name)
    with torch.no_grad():
        layer.weight[index] *= factor  # pyright: ignore[reportIndexIssue]
        layer.bias[index] *= factor  # pyright: ignore[reportIndexIssue]
    return other


@pytest.mark.parametrize("factor", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(
    ("module", "layer", "weights"),
    [(Classifier(), "conv", "conv"), (Classifier(), "last", "last"), (Tokens(), "block", "block")],
)
def test_scaled_unit_equals_scaled_weights(module: nn.Module, layer: str, weights: str, factor: float):
    found = scaled(target(module, layer), layer, 2, factor)
    assert found == pytest.approx(expected(changed(module, weights, 2, factor)), abs=1e-5)
    assert not np.allclose(found, expected(module), atol=1e-4)


def test_scaled_unit_of_a_vector_is_missing_in_the_next_layer():
    module = Classifier()
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.fc.weight[:, 3] = 0
    assert scaled(target(module, "pool"), "pool", 3, 0.0) == pytest.approx(expected(other), abs=1e-5)


def test_network_is_unchanged_afterwards_and_by_a_factor_of_one():
    module = Classifier()
    reader = target(module, "conv", "relu")
    scaled(reader, "relu", 1, 0.0)
    assert scaled(reader, "relu", 1, 1.0) == pytest.approx(expected(module), abs=1e-6)
    assert np.exp(scaled(reader, "relu", 1, 0.0)).sum() == pytest.approx(1)
    assert not module.relu._forward_hooks  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("layer", "output", "message"),
    [
        (OUTPUT, None, "units of output cannot be scaled"),
        ("conv", OutputMeaning.VALUES, "units of conv cannot be scaled"),
        ("both", None, "units of both cannot be scaled"),
    ],
)
def test_what_cannot_be_scaled_is_said(layer: str, output: OutputMeaning | None, message: str):
    reader = target(Classifier(), layer, output=output)
    assert not reader.can_intervene(layer)
    with pytest.raises(UsageError, match=message):
        scaled(reader, layer, 1, 0.0)


@pytest.mark.parametrize("index", [-1, 5])
def test_unit_that_the_layer_does_not_have_is_refused(index: int):
    with pytest.raises(UsageError, match="the layer has the units 0 to 4"):
        scaled(target(Classifier(), "conv"), "conv", index, 0.0)
