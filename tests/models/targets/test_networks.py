"""Networks by name, and what is read of them: against computations written out here."""

from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Probe
from openmaia.core.units import Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import load
from openmaia.models.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess, TargetNetwork, verify
from openmaia.models.targets.state import weights_digest
from tests.helpers.samples import noise

torch.set_num_threads(1)

SMALL = Preprocess(size=(32, 32), crop=0.875, resample=Image.Resampling.BICUBIC, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def ask(reader: NetworkTarget, layer: str, index: int, image: EncodedImage):
    return reader.probe([Probe(unit=Unit(target="net", layer=layer, index=index), image=image)])[0]


def normalised(pixels: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    values = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).double() / 255
    return ((values - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])[None].float()


def agree(found: Any, expected: torch.Tensor) -> None:
    assert found.map is not None
    assert found.map.shape == tuple(expected.shape)
    assert np.allclose(found.map, expected.numpy(), atol=1e-4 * float(expected.abs().max()))
    assert found.value == pytest.approx(float(expected.max()), rel=1e-3, abs=1e-4)


# -- layers of the published networks ------------------------------------------------------------------------------------


def test_resnet_layers_equal_their_modules():
    network, image = load("resnet18", "untrained"), noise(0, 224, 224)
    net: Any = network.module
    with torch.no_grad():
        first = net.conv1(normalised(image.pixels, IMAGENET_MEAN, IMAGENET_STD))
        third = net.layer3(net.layer2(net.layer1(net.maxpool(torch.relu(net.bn1(first))))))[0]
    reader = NetworkTarget("net", network, ["conv1", "layer3"])
    agree(ask(reader, "layer3", 7, image), third[7])
    agree(ask(reader, "conv1", 3, image), first[0, 3])


def test_resnet152_has_the_published_layers_and_weights():
    info = NetworkTarget(
        "net", load("resnet152", "untrained", "published"), ["conv1", *(f"layer{n}" for n in range(1, 5))]
    ).info()
    assert dict(info.layers) == {"conv1": 64, "layer1": 256, "layer2": 512, "layer3": 1024, "layer4": 2048}
    # V1 resizes to 256 before its crop of 224; V2, torchvision's default today, to 232.
    assert load("resnet152", "untrained").preprocess.crop == 224 / 256
    assert load("torchvision:resnet152@IMAGENET1K_V2", "untrained").preprocess.crop == 224 / 232


@pytest.fixture(scope="module")
def dino() -> NetworkTarget:
    layers = [f"blocks.{block}.mlp.fc1" for block in (1, 3, 5, 7, 9, 11)]
    return NetworkTarget("net", load("dino_vits8", "untrained", "published"), layers)


@pytest.mark.parametrize(("height", "width"), [(224, 224), (224, 300)])
def test_dino_layer_has_patches_without_class_token(dino: NetworkTarget, height: int, width: int):
    image = noise(1, height, width)
    reference: nn.Module = timm.create_model("vit_small_patch8_224.dino", dynamic_img_size=True).eval()
    reference.load_state_dict(load("dino_vits8", "untrained").module.state_dict())
    caught: list[Any] = []
    reference.get_submodule("blocks.3.mlp.fc1").register_forward_hook(lambda _m, _i, output: caught.append(output))
    # 300 columns are 37 patches of 8; what is left over is not seen.
    seen = image.pixels[:, : width // 8 * 8]
    with torch.no_grad():
        reference(normalised(seen, IMAGENET_MEAN, IMAGENET_STD))
    expected = caught[0][0, 1:].T.reshape(1536, 28, width // 8)
    agree(ask(dino, "blocks.3.mlp.fc1", 99, image), expected[99])
    assert float(expected[99].min()) < 0


def test_dino_has_the_published_layers(dino: NetworkTarget):
    assert set(dino.info().layers.values()) == {1536}
    assert list(dino.info().layers) == [f"blocks.{block}.mlp.fc1" for block in (1, 3, 5, 7, 9, 11)]


@pytest.fixture(scope="module")
def clip() -> TargetNetwork:
    return load("clip_rn50", "untrained", "published")


def test_clip_has_the_published_layer_names(clip: TargetNetwork):
    image = noise(2, 224, 224)
    reader = NetworkTarget("net", clip, ["layer1", "layer2", "layer3", "layer4"])
    assert dict(reader.info().layers) == {"layer1": 256, "layer2": 512, "layer3": 1024, "layer4": 2048}
    net: Any = clip.module
    with torch.no_grad():
        x = net.stem(
            normalised(image.pixels, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
        )
        stages = [x := stage(x) for stage in net.stages]
    for number, stage in enumerate(stages, start=1):
        agree(ask(reader, f"layer{number}", 11, image), stage[0, 11])
        assert float(stage.min()) >= 0


def test_clip_keeps_its_preprocessing(clip: TargetNetwork):
    pixels = noise(3, 300, 451).pixels
    image = Image.fromarray(pixels)
    short = image.resize((round(451 * 224 / 300), 224), Image.Resampling.BICUBIC)
    left = (short.width - 224) // 2
    expected = np.asarray(short.crop((left, 0, left + 224, 224)), dtype=float)
    view, box = clip.preprocess.view(pixels)
    assert view.shape == (224, 224, 3)
    assert box == (75.5, 0, 375.5, 300)
    # On noise, half a pixel of shift to the side is all the difference there can be.
    assert np.abs(view.mean(axis=(1, 2)) - expected.mean(axis=(1, 2))).max() < 4


def test_embedding_is_no_probability(clip: TargetNetwork):
    image = noise(2, 224, 224)
    answer = ask(NetworkTarget("net", clip, ["output"]), "output", 5, image)
    with torch.no_grad():
        embedding = clip.module(clip.preprocess.tensor(image.pixels)[None])[0]
    assert answer.raw is None
    assert answer.value == pytest.approx(float(embedding[5]), rel=1e-3)


def test_module_name_precedes_alias():
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Conv2d(2, 7, 3))
    network = TargetNetwork(module=net, preprocess=SMALL, aliases={"0": "1", "last": "1"})
    assert dict(NetworkTarget("net", network, ["0", "last"]).info().layers) == {"0": 2, "last": 7}


# -- preprocessing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "swin_t", "convnext_tiny"])
def test_preprocessing_equals_torchvision_transforms(name: str):
    pytest.importorskip("skimage")
    import skimage.data

    cat, network = skimage.data.chelsea(), load(name, "untrained")
    transforms = torchvision.models.get_model_weights(name)["DEFAULT"].transforms()
    theirs = transforms(Image.fromarray(cat))
    ours = network.preprocess.tensor(network.preprocess.view(cat)[0])
    assert float((ours - theirs).abs().mean()) < 0.02
    with torch.no_grad():
        found, expected = network.module(torch.stack([ours, theirs]))
    assert float((found - expected).norm() / expected.norm()) < 0.02


def test_squashed_image_is_seen_whole():
    squeezing = Preprocess(
        size=(32, 32), crop=1.0, resample=Image.Resampling.BOX, mean=(0, 0, 0), std=(1, 1, 1), squash=True
    )
    view, box = squeezing.view(np.repeat(np.arange(64, dtype=np.uint8), 32 * 3).reshape(64, 32, 3))
    assert box == (0, 0, 32, 64)
    assert np.array_equal(view[:, 0, 0], np.arange(32) * 2 + 1) or np.array_equal(view[:, 0, 0], np.arange(32) * 2)


@pytest.mark.parametrize(
    "wrong", [{"crop": 1.0}, {"crop": 1.15}, {"squash": True}, {"mean": (0.5, 0.5, 0.5)}, {"size": (36, 36)}]
)
def test_wrong_preprocessing_is_refused(wrong: dict[str, Any]):
    def theirs(image: Image.Image) -> torch.Tensor:
        return SMALL.tensor(SMALL.view(np.asarray(image))[0])

    values: dict[str, Any] = {
        "size": (32, 32),
        "crop": 0.875,
        "resample": SMALL.resample,
        "mean": SMALL.mean,
        "std": SMALL.std,
    }
    assert verify(Preprocess(**values), theirs, "net") == SMALL
    with pytest.raises(UsageError, match="in a way that OpenMAIA cannot reproduce"):
        verify(Preprocess(**(values | wrong)), theirs, "net")


def test_fixed_size_network_refuses_whole_images():
    with pytest.raises(UsageError, match="target.preprocess=weights"):
        NetworkTarget("net", load("timm:vit_tiny_patch16_224", "untrained", "published"), ["blocks.1"])


# -- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet51", "resnet50"),
        ("clip-RN50", "clip_rn50"),
        ("dino-vits8", "dino_vits8"),
        ("torchvision:vit_b16", "vit_b_16"),
        ("timm:convnext_ato", "convnext_atto"),
        ("resnet18@IMAGENET", "IMAGENET1K_V1"),
    ],
)
def test_unknown_name_suggests_the_nearest(name: str, near: str):
    with pytest.raises(UsageError, match=near):
        load(name)


def test_random_weights_are_reproducible():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, other = load("resnet18", "untrained"), load("torchvision:resnet18", "untrained")
    assert torch.equal(torch.rand(1), expected)
    assert weights_digest(one.module.state_dict().items()) == weights_digest(other.module.state_dict().items())
    assert one.labels == ()


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_input_transform_is_kept_without_weights(name: str):
    module: Any = load(name, "untrained").module
    assert module.transform_input is True


def test_timm_model_without_weights_is_refused():
    with pytest.raises(UsageError, match="timm has no weights for 'vit_small_patch8_224.nowhere'|cannot be had"):
        load("timm:vit_small_patch8_224.nowhere")


def test_timm_hub_network_needs_its_own_weights():
    with pytest.raises(UsageError, match="nothing is downloaded"):
        load("timm:hf-hub:nobody/nothing", "untrained")
