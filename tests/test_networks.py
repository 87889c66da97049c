"""Networks by name, checkpoints of the user's own, and what is read of them: against computations written out here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
import transformers
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from openmaia.errors import HostDead, ServiceError, UsageError
from openmaia.images import Picture
from openmaia.services import Probe
from openmaia.targets.hooked import NetworkTarget, rounded, weights_digest
from openmaia.targets.networks import load
from openmaia.targets.networks.from_hub import any_network
from openmaia.targets.networks.from_timm import any_network as from_timm
from openmaia.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Network, Preprocess, agreeing, published
from openmaia.units import Unit
from tests.samples import noise

torch.set_num_threads(1)

SMALL = Preprocess(size=(32, 32), crop=0.875, resample=Image.Resampling.BICUBIC, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def ask(reader: NetworkTarget, layer: str, index: int, picture: Picture):
    return reader.probe([Probe(unit=Unit(target="net", layer=layer, index=index), picture=picture)])[0]


def normalised(pixels: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    values = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).double() / 255
    return ((values - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])[None].float()


def agree(found: Any, expected: torch.Tensor) -> None:
    assert found.map is not None
    assert found.map.shape == tuple(expected.shape)
    assert np.allclose(found.map, expected.numpy(), atol=1e-4 * float(expected.abs().max()))
    assert found.value == pytest.approx(float(expected.max()), rel=1e-3, abs=1e-4)


# -- layers of the published networks ------------------------------------------------------------------------------------


def test_a_stage_of_a_resnet_is_what_its_modules_give_one_after_the_other():
    network, picture = load("resnet18", "random"), noise(0, 224, 224)
    net: Any = network.module
    with torch.no_grad():
        first = net.conv1(normalised(picture.pixels, IMAGENET_MEAN, IMAGENET_STD))
        third = net.layer3(net.layer2(net.layer1(net.maxpool(torch.relu(net.bn1(first))))))[0]
    reader = NetworkTarget("net", network, ["conv1", "layer3"])
    agree(ask(reader, "layer3", 7, picture), third[7])
    agree(ask(reader, "conv1", 3, picture), first[0, 3])


def test_the_papers_resnet152_has_their_layers_and_their_weights():
    info = NetworkTarget(
        "net", load("resnet152", "random", "published"), ["conv1", *(f"layer{n}" for n in range(1, 5))]
    ).info()
    assert dict(info.layers) == {"conv1": 64, "layer1": 256, "layer2": 512, "layer3": 1024, "layer4": 2048}
    # V1 resizes to 256 before its crop of 224; V2, torchvision's default today, to 232.
    assert load("resnet152", "random").preprocess.crop == 224 / 256
    assert load("torchvision:resnet152@IMAGENET1K_V2", "random").preprocess.crop == 224 / 232


@pytest.fixture(scope="module")
def dino() -> NetworkTarget:
    layers = [f"blocks.{block}.mlp.fc1" for block in (1, 3, 5, 7, 9, 11)]
    return NetworkTarget("net", load("dino_vits8", "random", "published"), layers)


@pytest.mark.parametrize(("height", "width"), [(224, 224), (224, 300)])
def test_a_dino_layer_is_its_patches_before_gelu_without_the_class_token(dino: NetworkTarget, height: int, width: int):
    picture = noise(1, height, width)
    reference: nn.Module = timm.create_model("vit_small_patch8_224.dino", dynamic_img_size=True).eval()
    reference.load_state_dict(load("dino_vits8", "random").module.state_dict())
    caught: list[torch.Tensor] = []
    reference.get_submodule("blocks.3.mlp.fc1").register_forward_hook(lambda _m, _i, output: caught.append(output))
    # 300 columns are 37 patches of 8; what is left over is not seen.
    seen = picture.pixels[:, : width // 8 * 8]
    with torch.no_grad():
        reference(normalised(seen, IMAGENET_MEAN, IMAGENET_STD))
    expected = caught[0][0, 1:].T.reshape(1536, 28, width // 8)
    agree(ask(dino, "blocks.3.mlp.fc1", 99, picture), expected[99])
    assert float(expected[99].min()) < 0


def test_the_published_dino_layers_exist_with_their_widths(dino: NetworkTarget):
    assert set(dino.info().layers.values()) == {1536}
    assert list(dino.info().layers) == [f"blocks.{block}.mlp.fc1" for block in (1, 3, 5, 7, 9, 11)]


@pytest.fixture(scope="module")
def clip() -> Network:
    return load("clip_rn50", "random", "published")


def test_clip_is_read_under_the_names_it_was_published_with(clip: Network):
    picture = noise(2, 224, 224)
    reader = NetworkTarget("net", clip, ["layer1", "layer2", "layer3", "layer4"])
    assert dict(reader.info().layers) == {"layer1": 256, "layer2": 512, "layer3": 1024, "layer4": 2048}
    net: Any = clip.module
    with torch.no_grad():
        x = net.stem(
            normalised(picture.pixels, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
        )
        stages = [x := stage(x) for stage in net.stages]
    for number, stage in enumerate(stages, start=1):
        agree(ask(reader, f"layer{number}", 11, picture), stage[0, 11])
        assert float(stage.min()) >= 0


def test_clip_keeps_its_own_preprocessing_among_the_published_ones(clip: Network):
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


def test_an_embedding_is_no_probability(clip: Network):
    picture = noise(2, 224, 224)
    answer = ask(NetworkTarget("net", clip, ["output"]), "output", 5, picture)
    with torch.no_grad():
        embedding = clip.module(clip.preprocess.tensor(picture.pixels)[None])[0]
    assert answer.raw is None
    assert answer.value == pytest.approx(float(embedding[5]), rel=1e-3)


def test_a_name_of_the_modules_own_goes_before_an_alias():
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Conv2d(2, 7, 3))
    network = Network(module=net, preprocess=SMALL, aliases={"0": "1", "last": "1"})
    assert dict(NetworkTarget("net", network, ["0", "last"]).info().layers) == {"0": 2, "last": 7}


# -- preprocessing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "swin_t", "convnext_tiny"])
def test_pictures_are_prepared_nearly_as_by_the_weights_own_transforms(name: str):
    pytest.importorskip("skimage")
    import skimage.data

    cat, network = skimage.data.chelsea(), load(name, "random")
    transforms = torchvision.models.get_model_weights(name)["DEFAULT"].transforms()
    theirs = transforms(Image.fromarray(cat))
    ours = network.preprocess.tensor(network.preprocess.view(cat)[0])
    assert float((ours - theirs).abs().mean()) < 0.02
    with torch.no_grad():
        found, expected = network.module(torch.stack([ours, theirs]))
    assert float((found - expected).norm() / expected.norm()) < 0.02


def test_a_squeezed_picture_is_seen_whole():
    squeezing = Preprocess(
        size=(32, 32), crop=1.0, resample=Image.Resampling.BOX, mean=(0, 0, 0), std=(1, 1, 1), squash=True
    )
    view, box = squeezing.view(np.repeat(np.arange(64, dtype=np.uint8), 32 * 3).reshape(64, 32, 3))
    assert box == (0, 0, 32, 64)
    assert np.array_equal(view[:, 0, 0], np.arange(32) * 2 + 1) or np.array_equal(view[:, 0, 0], np.arange(32) * 2)


@pytest.mark.parametrize(
    "wrong", [{"crop": 1.0}, {"crop": 1.15}, {"squash": True}, {"mean": (0.5, 0.5, 0.5)}, {"size": (36, 36)}]
)
def test_preprocessing_that_was_misunderstood_is_noticed(wrong: dict[str, Any]):
    def theirs(image: Image.Image) -> torch.Tensor:
        return SMALL.tensor(SMALL.view(np.asarray(image))[0])

    values: dict[str, Any] = {
        "size": (32, 32),
        "crop": 0.875,
        "resample": SMALL.resample,
        "mean": SMALL.mean,
        "std": SMALL.std,
    }
    assert agreeing(Preprocess(**values), theirs, "net") == SMALL
    with pytest.raises(UsageError, match="in a way that OpenMAIA cannot follow"):
        agreeing(Preprocess(**(values | wrong)), theirs, "net")


def test_a_network_of_one_input_size_is_not_shown_whole_pictures():
    with pytest.raises(UsageError, match="target.preprocess=weights"):
        NetworkTarget("net", load("timm:vit_tiny_patch16_224", "random", "published"), ["blocks.1"])


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
def test_a_name_that_is_not_known_is_answered_with_the_nearest(name: str, near: str):
    with pytest.raises(UsageError, match=near):
        load(name)


def test_random_weights_are_the_same_every_time_and_leave_the_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, other = load("resnet18", "random"), load("torchvision:resnet18", "random")
    assert torch.equal(torch.rand(1), expected)
    assert weights_digest(one.module.state_dict().items()) == weights_digest(other.module.state_dict().items())
    assert one.labels == ()


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_networks_that_shift_their_inputs_do_so_without_torchvisions_weights_too(name: str):
    module: Any = load(name, "random").module
    assert module.transform_input is True


def test_timm_without_weights_of_its_own_says_so():
    with pytest.raises(UsageError, match="timm has no weights for 'vit_small_patch8_224.nowhere'|cannot be had"):
        load("timm:vit_small_patch8_224.nowhere")


def test_a_network_of_timms_hub_is_not_fetched_for_a_checkpoint_of_ones_own():
    with pytest.raises(UsageError, match="nothing is downloaded"):
        load("timm:hf-hub:nobody/nothing", "random")


# -- weights that a library fetches --------------------------------------------------------------------------------------


class Running:
    """A pickle of it makes a directory when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.mkdir, (self.path,)


def trap(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    sprung = tmp_path / "sprung"
    return {"fc.weight": torch.zeros(2, 2), "more": Running(sprung)}, sprung


@pytest.fixture
def torch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where torchvision finds what it has fetched before."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    return tmp_path / "hub/checkpoints"


def test_torchvisions_own_weights_come_with_their_labels(torch_home: Path):
    torch.manual_seed(7)
    state = torchvision.models.resnet18().state_dict()
    torch.save(state, torch_home / "resnet18-f37072fd.pth")
    network = load("resnet18")
    assert weights_digest(network.module.state_dict().items()) == weights_digest(state.items())
    assert network.labels[282] == "tiger cat"


def test_a_pickle_in_the_place_of_torchvisions_weights_is_not_run(torch_home: Path, tmp_path: Path):
    content, sprung = trap(tmp_path)
    torch.save(content, torch_home / "resnet18-f37072fd.pth")
    with pytest.raises(UsageError, match="its weights cannot be had"):
        load("resnet18")
    assert not sprung.exists()


def test_weights_that_cannot_be_reached_can_be_given_as_a_file(torch_home: Path):
    with pytest.raises(UsageError, match="give it as target.weights"):
        load("resnet18")


def local_timm(folder: Path) -> str:
    config = {
        "architecture": "convnext_atto",
        "num_classes": 3,
        "model_args": {"depths": [1, 1, 1, 1], "dims": [8, 8, 8, 8]},
    }
    (folder / "config.json").write_text(
        json.dumps(config | {"pretrained_cfg": {"input_size": [3, 64, 64], "num_classes": 3}})
    )
    return f"local-dir:{folder}"


def test_timms_weights_are_loaded(tmp_path: Path):
    torch.manual_seed(7)
    made: nn.Module = timm.create_model("convnext_atto", num_classes=3, depths=(1, 1, 1, 1), dims=(8, 8, 8, 8))
    name = local_timm(tmp_path)
    save_file(made.state_dict(), tmp_path / "model.safetensors")
    network = from_timm(name, own=True)
    assert weights_digest(network.module.state_dict().items()) == weights_digest(made.state_dict().items())
    assert network.preprocess.size == (64, 64)


def test_a_pickle_in_the_place_of_timms_weights_is_not_run(tmp_path: Path):
    content, sprung = trap(tmp_path)
    name = local_timm(tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match="cannot be had"):
        from_timm(name, own=True)
    assert not sprung.exists()


def hub_folder(folder: Path, classes: int = 3) -> transformers.PreTrainedModel:
    torch.manual_seed(7)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    config.num_labels = classes
    model = transformers.ViTForImageClassification(config)
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return model


def test_a_folder_of_hugging_face_is_read_with_its_own_preprocessing(tmp_path: Path):
    model, picture = hub_folder(tmp_path).eval(), noise(4, 60, 90)
    network = load(f"hf:{tmp_path}")
    processor: Any = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    with torch.no_grad():
        outputs: Any = model(
            torch.as_tensor(network.preprocess.tensor(network.preprocess.view(picture.pixels)[0]))[None],
            output_hidden_states=True,
        )
    expected = outputs.hidden_states[1][0, 1:].T.reshape(16, 4, 4)
    reader = NetworkTarget(
        "net",
        network,
        ["vit.layers.0" if "vit.layers.0" in dict(model.named_modules()) else "vit.encoder.layer.0", "output"],
    )
    layer = next(iter(reader.info().layers))
    agree(ask(reader, layer, 5, picture), expected[5])
    assert ask(reader, "output", 1, picture).raw == pytest.approx(float(outputs.logits[0, 1]), rel=1e-3)
    assert network.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert network.preprocess.squash
    assert processor.size["height"] == network.preprocess.size[0]


def test_a_backbone_without_its_pooling_layer_is_complete_and_a_head_that_is_missing_is_not(tmp_path: Path):
    model: Any = hub_folder(tmp_path)
    model.vit.save_pretrained(tmp_path)
    network = load(f"hf:{tmp_path}")
    assert not network.classifies
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["ViTForImageClassification"]}))
    with pytest.raises(UsageError, match="has no weights for classifier"):
        load(f"hf:{tmp_path}")


def test_a_pickle_in_the_place_of_hugging_faces_weights_is_not_run(tmp_path: Path):
    hub_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    content, sprung = trap(tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match="cannot be had"):
        load(f"hf:{tmp_path}")
    assert not sprung.exists()


def test_truncated_weights_and_folders_without_a_network_are_the_users_mistake(tmp_path: Path):
    hub_folder(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="model.safetensors"):
            any_network(str(folder), own=True)


# -- checkpoints of the user's own ---------------------------------------------------------------------------------------


def four_classes() -> dict[str, torch.Tensor]:
    torch.manual_seed(9)
    return torchvision.models.resnet18(num_classes=4).state_dict()


@pytest.mark.parametrize("wrapped", ["plain", "state_dict", "model", "module.", "_orig_mod.", "both"])
def test_a_checkpoint_brings_its_number_of_classes_however_it_is_wrapped(wrapped: str, tmp_path: Path):
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


def test_a_head_on_a_network_that_had_none_is_taken_over(tmp_path: Path):
    torch.manual_seed(9)
    arguments: dict[str, Any] = {"num_classes": 5}
    state = timm.create_model("vit_tiny_patch16_224.augreg_in21k", **arguments).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    module = load("timm:vit_tiny_patch16_224", str(tmp_path / "w.safetensors")).module
    assert weights_digest(module.state_dict().items()) == weights_digest(state.items())
    bare: nn.Module = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    from openmaia.targets.networks.checkpoint import load_checkpoint

    load_checkpoint(bare, str(tmp_path / "w.safetensors"))
    assert bare(torch.zeros(1, 3, 224, 224)).shape == (1, 5)


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path: Path):
    content, sprung = trap(tmp_path)
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UsageError, match="nothing of it was run"):
        load("resnet18", str(tmp_path / "w.pth"))
    assert not sprung.exists()
    torch.load(tmp_path / "w.pth", weights_only=False)
    assert sprung.exists()


def test_a_whole_pickled_network_is_refused(tmp_path: Path):
    torch.save(nn.Linear(2, 2), tmp_path / "w.pt")
    with pytest.raises(UsageError, match="Save the state_dict alone"):
        load("resnet18", str(tmp_path / "w.pt"))


def test_a_checkpoint_of_another_architecture_is_told_apart_by_its_first_names(tmp_path: Path):
    torch.save(torchvision.models.resnet34().state_dict(), tmp_path / "w.pth")
    with pytest.raises(UsageError) as caught:
        load("resnet18", str(tmp_path / "w.pth"))
    assert caught.value.message.startswith("target.weights=")
    assert "unexpected: layer1.2.conv1.weight, " in caught.value.message
    save_file(four_classes(), tmp_path / "w.safetensors")
    with pytest.raises(UsageError) as caught:
        load("vgg11", str(tmp_path / "w.safetensors"))
    assert "missing: features.0.weight, " in caught.value.message
    assert " more" in caught.value.message


def test_a_layer_of_another_width_is_named_with_both_shapes(tmp_path: Path):
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
        ("w.h5", b"", "expected a .safetensors, .pt or .pth file"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_the_users_mistake(name: str, content: bytes, message: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load("resnet18", str(tmp_path / name))


@pytest.mark.parametrize("content", [{}, [1], {"a": 1}, {"state_dict": {}}, torch.zeros(3)])
def test_a_file_without_a_state_dict_is_the_users_mistake(content: Any, tmp_path: Path):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UsageError, match="holds no state_dict"):
        load("resnet18", str(tmp_path / "w.pt"))


def test_the_old_names_inside_torchvisions_densenets_are_understood(tmp_path: Path):
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


# -- batches and devices -------------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Remembers how many pictures of which size came in each pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.passes = nn.Conv2d(3, 4, 3), list[tuple[int, ...]]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append((len(x), *x.shape[2:]))
        return self.conv(x)


def counting(batch: int) -> tuple[NetworkTarget, Counting]:
    module = Counting()
    reader = NetworkTarget(
        "net", Network(module=module, preprocess=published((16, 16))), ["conv"], device="cpu", batch=batch
    )
    module.passes.clear()
    return reader, module


def test_pictures_of_equal_size_pass_together_once_and_are_remembered():
    reader, module = counting(batch=3)
    pictures = [noise(seed, 16, width) for seed, width in enumerate([16, 20, 16, 16, 16, 20])]
    reader.probe(
        [Probe(unit=Unit(target="net", layer="conv", index=i % 4), picture=p) for i, p in enumerate(pictures * 2)]
    )
    assert sorted(module.passes) == [(1, 16, 16), (2, 16, 20), (3, 16, 16)]
    reader.respond_batch(pictures)
    assert len(module.passes) == 3


def test_a_batch_answers_like_one_picture_after_the_other():
    pictures = [noise(seed, 16, width) for seed, width in enumerate([16, 20, 16, 16])]
    together, alone = counting(batch=8)[0], counting(batch=0)[0]
    for picture, (responses, box) in zip(pictures, together.respond_batch(pictures), strict=True):
        expected, expected_box = alone.respond(picture)
        assert box == expected_box
        assert np.allclose(responses["conv"], expected["conv"], atol=1e-5)
        assert rounded(responses["conv"].max()) == pytest.approx(rounded(expected["conv"].max()), rel=2e-5)


def test_on_a_cpu_pictures_pass_one_by_one():
    reader, module = counting(batch=0)
    reader.respond_batch([noise(seed, 16, 16) for seed in range(3)])
    assert module.passes == [(1, 16, 16)] * 3


@pytest.mark.parametrize(
    ("raised", "expected"), [(torch.OutOfMemoryError, ServiceError), (torch.AcceleratorError, HostDead)]
)
def test_a_gpu_that_fails_while_serving_is_no_mistake_of_the_user(
    raised: type[RuntimeError], expected: type[ServiceError]
):
    class Failing(nn.Conv2d):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            if input.abs().max() > 0:
                raise raised("the device said so")
            return super().forward(input)

    network = Network(module=nn.Sequential(Failing(3, 2, 3)), preprocess=SMALL)
    reader = NetworkTarget("net", network, ["0"], device="cpu")
    with pytest.raises(expected, match="the device said so") as caught:
        reader.respond(noise(0))
    assert type(caught.value) is expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_answers_as_a_cpu_does():
    pictures = [noise(seed, 224, 224) for seed in range(40)]
    found, expected = (
        NetworkTarget("net", load("resnet18", "random"), ["layer3"], device=device).respond_batch(pictures)
        for device in ("", "cpu")
    )
    for (on_gpu, _), (on_cpu, _) in zip(found, expected, strict=True):
        assert np.allclose(on_gpu["layer3"], on_cpu["layer3"], atol=1e-4 * float(np.abs(on_cpu["layer3"]).max()))
