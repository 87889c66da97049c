"""Units scaled in the forward pass: against networks whose weights are changed instead."""

import copy
from dataclasses import replace

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


def target(
    module: nn.Module, *layers: str, output: OutputMeaning | None = None, batch: int = 0, crop: float | None = 1
) -> NetworkTarget:
    preprocess = replace(PREPROCESS, crop=crop)
    network = TargetNetwork(module=module.eval(), preprocess=preprocess, output=output, labels=tuple("abcd"))
    return NetworkTarget("net", network, layers, batch=batch)


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


def test_interventions_that_share_passes_equal_single_ones():
    module, passes = Classifier(), list[int]()
    alone = target(module, "conv", "pool", output=OutputMeaning.SOFTMAX, crop=None)
    together = target(module, "conv", "pool", output=OutputMeaning.SOFTMAX, batch=3, crop=None)
    changes = [
        Intervention(unit=Unit(target="net", layer=layer, index=index), image=image, factor=factor)
        for image in (noise(1, 32, 48), noise(2, 32, 48), noise(3, 32, 64))
        for layer, index, factor in (("conv", 2, 0.0), ("pool", 1, 3.0), ("conv", 4, 0.5))
    ]
    expected = [alone.intervene([each])[0] for each in changes]
    module.conv.register_forward_pre_hook(lambda _module, inputs: passes.append(len(inputs[0])))
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(together.intervene(changes), expected, strict=True))
    # Of `conv` 4 and 2 images of a size, of `pool` 2 and 1; once a blank one each, to see whether units can be scaled.
    assert passes == [1, 1, 3, 1, 2, 2, 1]
