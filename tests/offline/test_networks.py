"""The packaged networks name what fresh scenes show, and are found by their names."""

from pathlib import Path

import numpy as np
import pytest
import torch

from measure.world.training.drawing import KINDS, main_kind, scene
from openmaia.assembly import targets
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import load as load_target_network
from openmaia.models.targets.networks.untrained import normalise
from openmaia.models.targets.places import noise
from openmaia.models.targets.preprocess import TargetNetwork
from openmaia.offline.networks.packaged import PREPROCESS, load_network, save_network
from openmaia.offline.networks.residual import ResidualNetwork
from openmaia.offline.networks.transformer import VisionTransformer
from openmaia.offline.scenes.layout import PLACES
from openmaia.offline.scenes.render import render
from tests.conftest import REPOSITORY
from tests.helpers.looking import look

NETWORK = "target.network=openmaia.offline.networks:scenes_resnet"
LAYERS = "target.layers=[stage1,stage2,stage3,stage4,output]"


def config(folder: Path, *overrides: str) -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "target.kind=network",
            "target.name=scenes_resnet",
            NETWORK,
            LAYERS,
            "pictures.kind=scenes",
            "pictures.count=60",
            f"paths.cache={folder}",
            *overrides,
        ]
    )


@pytest.mark.parametrize(
    ("name", "size", "least_kinds", "least_places"),
    [("scenes_resnet", 96, 0.75, 0.97), ("scenes_resnet", 224, 0.75, 0.97), ("scenes_vit", 224, 0.38, 0.97)],
)
def test_network_names_the_main_kind_and_the_place_of_fresh_scenes(
    name: str, size: int, least_kinds: float, least_places: float
):
    network = load_target_network(f"openmaia.offline.networks:{name}")
    assert network.labels == (*KINDS, *PLACES)
    scenes = [scene("test", n) for n in range(120)]
    kinds, places = (
        [each(one) for one in scenes] for each in (main_kind, lambda one: (*PLACES, "plain").index(one.place))
    )
    views = [network.preprocess.view(render(each, size))[0] for each in scenes]
    output = network.module(network.preprocess.batch(views, torch.device("cpu")))
    named = output[:, : len(KINDS)].argmax(1).tolist()
    at = output[:, len(KINDS) :].argmax(1).tolist()
    assert np.mean([a == b for a, b in zip(named, kinds, strict=True) if b >= 0]) > least_kinds
    assert np.mean([a == b for a, b in zip(at, places, strict=True) if b < len(PLACES)]) > least_places


def test_target_has_named_layers_classes_and_an_unchanged_digest(tmp_path: Path):
    info = targets.target(config(tmp_path)).info()
    assert dict(info.layers) == {"stage1": 40, "stage2": 64, "stage3": 112, "stage4": 160, "output": 81}
    assert {"boat", "dots", "underwater"} <= {*info.classes}
    assert [[info.classes[each] for each in info.head(index)] for index in (0, 80)] == [[*KINDS], [*PLACES]]
    assert info.digest.startswith("d9eaf26c5e56"), "results were measured with other weights"
    assert info.understood == ()


def test_heads_that_do_not_cover_the_labels_are_refused():
    with pytest.raises(UsageError, match=r"heads=\(2, 2\) and 3 labels"):
        TargetNetwork(module=torch.nn.Identity(), preprocess=PREPROCESS, labels=("a", "b", "c"), heads=(2, 2))


def test_saved_network_gives_the_same_answers(tmp_path: Path):
    torch.manual_seed(0)
    made = ResidualNetwork({"kind": 2, "place": 3}).half().float().eval()
    save_network(made, "residual", {"kind": ("a", "b"), "place": ("c", "d", "e")}, tmp_path / "made.safetensors")
    read, answers = load_network(tmp_path / "made.safetensors")
    assert answers == {"kind": ("a", "b"), "place": ("c", "d", "e")}
    image = torch.rand(1, 3, 96, 96)
    assert torch.equal(read(image), made(image))
    assert read(image).exp().sum().item() == pytest.approx(1)


def test_tokens_of_the_transformer_are_units_with_maps():
    module = VisionTransformer({"kind": 2, "place": 3})
    target = NetworkTarget("vit", TargetNetwork(module=module, preprocess=PREPROCESS), ["blocks.1", "blocks.2.hidden"])
    assert dict(target.info().layers) == {"blocks.1": 120, "blocks.2.hidden": 480}
    ((_, found),) = look(target, [render(scene("test", 0), 224)])
    assert found["blocks.1"].shape == (120, 8, 8)


def test_untrained_network_is_repeatable_and_is_another_network(tmp_path: Path):
    trained, *twice = (targets.target(config(tmp_path, *more)) for more in ((), *(("target.weights=untrained",),) * 2))
    digests = [each.info().digest for each in twice]
    assert digests[0] == digests[1] != trained.info().digest
    assert twice[0].info().classes == trained.info().classes
    pictures = [render(scene("test", n), 96) for n in range(24)]
    peaks = np.array([each["stage4"].max((1, 2)) for _, each in look(twice[0], pictures)])
    # Normalised: values neither grow nor vanish, and hardly a unit is never active.
    assert 0.2 < peaks.mean() < 20
    assert (peaks.max(0) > 0).mean() > 0.95
    assert np.ptp(peaks, axis=0).mean() > 0.2


def test_untrained_network_without_pictures_is_normalised_by_noise():
    network = load_target_network("openmaia.offline.networks:scenes_resnet", "untrained")
    normalise(network, lambda: None)
    seen: list[torch.Tensor] = []
    network.module.get_submodule("stage4.norm2").register_forward_hook(lambda _m, _i, output: seen.append(output))
    network.module(network.preprocess.batch([noise((96, 96), seed) for seed in range(16)], torch.device("cpu")))
    deviation, mean = torch.std_mean(seen[0], dim=(0, 2, 3))
    assert deviation.sub(1).abs().max() < 0.01
    assert mean.abs().max() < 0.01


def test_untrained_network_takes_no_directions_of_the_trained_one(tmp_path: Path):
    with pytest.raises(UsageError, match="directions are those of the trained network"):
        config(tmp_path, "target.weights=untrained", f"target.directions={{stage3: {tmp_path}/none.safetensors}}")
