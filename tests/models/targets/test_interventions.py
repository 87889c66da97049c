"""Units changed in the forward pass: against networks whose weights, or whose layers by sums written out, are changed."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.services import LOGITS, Effects, Intervention, LayerProbe
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.dictionary import Normalisation, spread
from openmaia.models.targets.dictionary_format import read_dictionary
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
    module: nn.Module,
    *layers: str,
    output: OutputMeaning | None = None,
    batch: int = 0,
    crop: float | None = 1,
    **others: Any,
) -> NetworkTarget:
    preprocess = replace(PREPROCESS, crop=crop)
    network = TargetNetwork(module=module.eval(), preprocess=preprocess, output=output, labels=tuple("abcd"))
    return NetworkTarget("net", network, layers, batch=batch, **others)


def asked(reader: NetworkTarget, layer: str, index: int, **change: Any) -> np.ndarray:
    unit = Unit(target="net", layer=layer, index=index)
    return reader.intervene([Intervention(unit=unit, image=IMAGE, **change)])[0]


def written_out(module: nn.Module, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    """The log-probabilities if a layer's output is replaced by `change` of it."""

    def replaced(_module: nn.Module, _inputs: Any, output: Any) -> torch.Tensor:
        return change(output)

    hook = module.get_submodule(name).register_forward_hook(replaced)
    try:
        return expected(module)
    finally:
        hook.remove()


def scaled(reader: NetworkTarget, layer: str, index: int, factor: float) -> np.ndarray:
    unit = Unit(target="net", layer=layer, index=index)
    return reader.intervene([Intervention(unit=unit, image=IMAGE, scale=factor)])[0]


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
        (OUTPUT, None, "units of output cannot be changed"),
        ("conv", OutputMeaning.VALUES, "units of conv cannot be changed"),
        ("both", None, "units of both cannot be changed"),
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
        Intervention(unit=Unit(target="net", layer=layer, index=index), image=image, scale=factor)
        for image in (noise(1, 32, 48), noise(2, 32, 48), noise(3, 32, 64))
        for layer, index, factor in (("conv", 2, 0.0), ("pool", 1, 3.0), ("conv", 4, 0.5))
    ]
    expected = [alone.intervene([each])[0] for each in changes]
    module.conv.register_forward_pre_hook(lambda _module, inputs: passes.append(len(inputs[0])))
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(together.intervene(changes), expected, strict=True))
    # Of `conv` 4 and 2 images of a size, of `pool` 2 and 1; once a blank one each, to see whether units can be scaled.
    assert passes == [1, 1, 3, 1, 2, 2, 1]


def test_unit_is_clamped_to_a_value_and_raised_by_one():
    module, reader = Classifier(), target(Classifier(), "conv")
    clamped = copy.deepcopy(module)
    with torch.no_grad():
        clamped.conv.weight[3] = 0
        clamped.conv.bias[3] = 1.5  # pyright: ignore[reportOptionalSubscript]
    raised = copy.deepcopy(module)
    with torch.no_grad():
        raised.conv.bias[3] += 1.5  # pyright: ignore[reportOptionalSubscript]
    assert asked(reader, "conv", 3, add=1.5) == pytest.approx(expected(clamped), abs=1e-5)
    assert asked(reader, "conv", 3, scale=1.0, add=1.5) == pytest.approx(expected(raised), abs=1e-5)


@pytest.mark.parametrize(
    ("module", "layer", "at"),
    [(Classifier(), "conv", (1, 3)), (Classifier(), "last", (1, 3)), (Tokens(), "block", (2, 4))],
)
def test_unit_is_changed_at_positions_alone(module: nn.Module, layer: str, at: tuple[int, int]):
    row, column = at

    def change(output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        if layer == "conv":
            output[:, 2, row, column] = 4
        elif layer == "last":
            output[:, row, column, 2] = 4
        else:  # 6 patches in a row, after the class token
            output[:, 1 + 6 * row + column, 2] = 4
        return output

    found = asked(target(module, layer), layer, 2, add=4.0, positions=(at,))
    assert found == pytest.approx(written_out(module, layer, change), abs=1e-5)
    assert not np.allclose(found, expected(module), atol=1e-5)


def test_positions_that_a_unit_does_not_have_are_refused():
    reader = target(Classifier(), "conv", "pool")
    with pytest.raises(UsageError, match=r"has a map of 15 x 23, and no position \(15, 0\)"):
        asked(reader, "conv", 2, positions=((15, 0),))
    with pytest.raises(UsageError, match="units of pool have no map"):
        asked(reader, "pool", 2, positions=((0, 0),))


WEIGHT = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize(
    "change", [{"scale": 0.0}, {"scale": 3.0}, {"scale": 0.0, "add": 2.0}, {"scale": 1.0, "add": 2.0}]
)
def test_direction_is_changed_along_itself(activation: str, change: dict[str, float], tmp_path: Path):
    path, bias = str(tmp_path / "d.safetensors"), torch.tensor([0.1, -0.2, 0.3, 0.0])
    save_file({"weight": WEIGHT, "bias": bias}, path, metadata={"activation": activation})
    module = Classifier()

    def along(output: torch.Tensor) -> torch.Tensor:
        before = torch.einsum("c,bchw->bhw", WEIGHT[2], output) + bias[2]
        before = before.clamp(min=0) if activation == "relu" else before
        after = change["scale"] * before + change.get("add", 0.0)
        return output + torch.einsum("bhw,c->bchw", after - before, WEIGHT[2] / (WEIGHT[2] @ WEIGHT[2]))

    found = asked(target(module, "conv", directions={"conv": path}), "conv/directions", 2, **change)
    assert found == pytest.approx(written_out(module, "conv", along), abs=1e-5)
    assert not np.allclose(found, expected(module), atol=1e-4)


def test_ablated_direction_responds_nowhere(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT}, path)
    found = asked(target(Classifier(), "conv", directions={"conv": path}), "conv/directions", 2, read="conv/directions")
    assert found[2] == pytest.approx(0, abs=1e-5)
    assert np.abs(found).min() < 1e-5 < np.sort(np.abs(found))[1]


def test_random_direction_takes_the_place_of_the_units_own(tmp_path: Path):
    drawn = torch.randn(5, generator=torch.Generator().manual_seed(3))
    module, path = Classifier(), str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT}, path)

    def along(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        vector = drawn / drawn.norm() / weight.norm()
        return lambda output: output - torch.einsum("bchw,c,d->bdhw", output, weight, vector)

    reader = target(module, "conv", directions={"conv": path})
    own = torch.eye(5)[2]
    assert asked(reader, "conv/directions", 2, random=3) == pytest.approx(
        written_out(module, "conv", along(WEIGHT[2])), abs=1e-5
    )
    reader = target(module, "conv")
    assert asked(reader, "conv", 2, random=3) == pytest.approx(written_out(module, "conv", along(own)), abs=1e-5)
    assert not np.allclose(asked(reader, "conv", 2, random=3), asked(reader, "conv", 2, random=4), atol=1e-4)


DICTIONARIES = Path(__file__).parent / "dictionaries"


@pytest.mark.parametrize("name", sorted(each.parent.name for each in DICTIONARIES.glob("*/expected.safetensors")))
def test_feature_adds_its_row_of_the_decoder(name: str):
    module, dictionary = Classifier(), read_dictionary("conv", str(DICTIONARIES / name), 5)
    index = int(dictionary.all(captured(module, "conv")).maxima()[0].argmax())

    def along(output: torch.Tensor) -> torch.Tensor:
        before = torch.stack([dictionary.unit(each, index) for each in output])
        step = 2 * before + 0.5 - before
        size = torch.ones_like(output[:, :1])
        if dictionary.normalisation == "layer_norm":
            size = output.std(dim=1, keepdim=True) + 1e-5
        elif dictionary.normalisation == "constant_norm_rescale":
            size = output.square().sum(dim=1, keepdim=True).sqrt() / 5**0.5
        return output + step[:, None] * size * dictionary.decoder[index].view(1, -1, 1, 1)

    reader = target(module, "conv", dictionaries={"conv": str(DICTIONARIES / name)})
    found = asked(reader, "conv/features", index, scale=2.0, add=0.5)
    assert found == pytest.approx(written_out(module, "conv", along), abs=1e-5)
    assert not np.allclose(found, expected(module), atol=1e-5)


def captured(module: nn.Module, name: str) -> torch.Tensor:
    kept: list[torch.Tensor] = []
    written_out(module, name, lambda output: kept.append(output.clone()) or output)
    return kept[0]


@pytest.mark.parametrize("normalisation", ["layer_norm", "constant_norm_rescale"])
def test_spread_undoes_the_normalisation(normalisation: Normalisation):
    from openmaia.models.targets.dictionary import _normalised  # pyright: ignore[reportPrivateUsage]

    channels = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    # Differences of channels are what a step in the normalised ones is multiplied with.
    between = _normalised(channels, normalisation).diff(dim=1)
    assert torch.allclose(between * spread(channels, normalisation), channels.diff(dim=1), atol=1e-6)


def test_feature_of_the_class_token_is_changed_there_alone(tmp_path: Path):
    weight, decoder = torch.randn(6, 8, generator=torch.Generator().manual_seed(1)), torch.eye(8, 6)
    (tmp_path / "cfg.json").write_text('{"architecture": "standard"}')
    save_file(
        {"W_enc": weight, "W_dec": decoder, "b_enc": torch.ones(8), "b_dec": torch.zeros(6)},
        tmp_path / "sae_weights.safetensors",
    )
    module = Tokens()

    def first(output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        output[:, 0, 3] += 2.0
        return output

    reader = target(module, "block", dictionaries={"block": str(tmp_path)}, tokens="class")
    found = asked(reader, "block/features", 3, scale=1.0, add=2.0)
    assert found == pytest.approx(written_out(module, "block", first), abs=1e-5)


class Rounded(Classifier):
    """Probabilities that sum to 1 for a blank image, and not quite for others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_blank = x.flatten(1).abs().amax(dim=1, keepdim=True) == 0
        return super().forward(x).softmax(dim=1) * torch.where(is_blank, 1.0, 1.02)


def test_probabilities_that_do_not_quite_sum_to_1_are_read():
    reader = target(Rounded(), "conv", OUTPUT, output=OutputMeaning.PROBABILITIES)
    assert np.exp(asked(reader, "conv", 2)).sum() == pytest.approx(1.02)
    assert np.isnan(asked(reader, "conv", 2, add=float("nan"))).all(), "what is not a number is no reason to fail"


def test_units_of_another_layer_and_logits_are_read():
    module = Classifier()
    reader = target(module, "conv", "last", OUTPUT, output=OutputMeaning.SOFTMAX)
    other = target(changed(module, "conv", 2, 0.0), "last")
    found = asked(reader, "conv", 2, read="last")
    assert found == pytest.approx(other.respond([LayerProbe(layer="last", image=IMAGE)])[0], abs=1e-4)
    logits = asked(reader, "conv", 2, read=LOGITS)
    assert logits - np.log(np.exp(logits).sum()) == pytest.approx(scaled(reader, "conv", 2, 0.0))
    assert asked(reader, "conv", 2, read=OUTPUT) == pytest.approx(np.exp(scaled(reader, "conv", 2, 0.0)), abs=1e-6)
    with pytest.raises(UsageError, match="unknown layer 'lats'.*did you mean 'last'"):
        asked(reader, "conv", 2, read="lats")


def test_regression_has_no_classes_and_other_layers_are_read():
    reader = target(Classifier(), "conv", "last", output=OutputMeaning.VALUES)
    assert reader.effects() == Effects(layers=(), classes=())
    assert asked(reader, "conv", 2, read="last").shape == (5,)


def test_effects_name_layers_and_classes(tmp_path: Path):
    path = str(tmp_path / "d.safetensors")
    save_file({"weight": WEIGHT}, path)
    reader = target(Classifier(), "conv", "both", OUTPUT, directions={"conv": path})
    assert reader.effects() == Effects(layers=("conv", "conv/directions"), classes=tuple("abcd"))
