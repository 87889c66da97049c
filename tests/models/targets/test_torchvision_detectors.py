"""The class scores of torchvision's detectors, with few random weights."""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torchvision.models.detection import FCOS, FasterRCNN, MaskRCNN, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD

from openmaia.core.components import Site, build
from openmaia.core.errors import UsageError
from openmaia.core.services import Intervention, Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.network import NetworkConfig, StudiedNetwork
from openmaia.models.targets.networks import load
from openmaia.models.targets.networks.torchvision_detectors import read_preprocess, scored
from openmaia.models.targets.preprocess import TargetNetwork
from tests.helpers.boxes import has_operators, provide
from tests.helpers.samples import noise

torch.set_num_threads(1)

SIDE, LONGEST, CLASSES = 64, 107, 4
ONE_STAGE, TWO_STAGES = ("fcos", "retinanet", "ssd"), ("faster_rcnn", "mask_rcnn")


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch):
    provide(monkeypatch)


class TwoLevels(nn.Module):
    """Two levels of features."""

    out_channels = 32

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 8, 8), nn.Conv2d(32, 32, 2, 2)

    def forward(self, given: torch.Tensor) -> Mapping[str, torch.Tensor]:
        found = torch.tanh(self.first(given))
        return OrderedDict([("0", found), ("1", torch.tanh(self.second(found)))])


def detector(kind: str) -> Any:
    """A detector that keeps all boxes until those that overlap are left out."""
    torch.manual_seed(0)
    kept: dict[str, Any] = {"score_thresh": 0.0, "detections_per_img": 10_000, "topk_candidates": 10_000}
    sizes: dict[str, Any] = {"min_size": SIDE, "max_size": LONGEST}
    each = AnchorGenerator(((16,), (32,)), ((1.0,),) * 2)
    two_stages = sizes | {"rpn_anchor_generator": each, "box_score_thresh": 0.0, "box_detections_per_img": 10_000}
    makes = {
        "fcos": lambda: FCOS(TwoLevels(), CLASSES, anchor_generator=each, **kept, **sizes),
        "retinanet": lambda: RetinaNet(TwoLevels(), CLASSES, anchor_generator=each, **kept, **sizes),
        "ssd": lambda: SSD(_ssd_backbone(), DefaultBoxGenerator([[2], [2]]), (SIDE, SIDE), CLASSES, **kept),
        "faster_rcnn": lambda: FasterRCNN(TwoLevels(), CLASSES, **two_stages),
        "mask_rcnn": lambda: MaskRCNN(TwoLevels(), CLASSES, **two_stages),
    }
    made = makes[kind]()
    with torch.no_grad():  # far from the usual weights, so that classes differ
        for own in made.parameters():
            own.normal_(std=0.02 if kind in TWO_STAGES else 0.1)
    return made.eval()


def _ssd_backbone() -> nn.Module:
    made: Any = TwoLevels()
    made.out_channels = [32, 32]
    return made


def scores(model: Any, image: np.ndarray) -> np.ndarray:
    """The largest score of each class that the detector's own head gives to any box. 0: the score of no object."""
    with torch.no_grad():
        given, _ = model.transform([torch.tensor(image).permute(2, 0, 1) / 255])
        found = model.head(list(model.backbone(given.tensors).values()))
    each = found["cls_logits"][0]
    if isinstance(model, SSD):
        return each.softmax(1).amax(0).numpy()
    centred = found["bbox_ctrness"][0].sigmoid() if isinstance(model, FCOS) else None
    return (each.sigmoid() if centred is None else (each.sigmoid() * centred).sqrt()).amax(0).numpy()


def ours(model: Any, image: np.ndarray) -> np.ndarray:
    preprocess = read_preprocess(model, "net")
    with torch.no_grad():
        given = preprocess.tensor(preprocess.view(image)[0])[None]
        return scored(model, "net").eval()(given)[0].sigmoid().numpy()


@pytest.mark.parametrize("shape", [(64, 64), (64, 96)])
@pytest.mark.parametrize("kind", ONE_STAGE)
def test_scores_are_the_largest_of_the_library(kind: str, shape: tuple[int, int]):
    """Of images that the library resizes only for a SSD, which takes squares."""
    model, image = detector(kind), noise(1, *shape).pixels
    expected = scores(model, image)
    assert np.ptp(expected[1:]) > 1e-3
    resized = kind == "ssd" and shape != (64, 64)  # to whole levels of colours
    assert ours(model, image) == pytest.approx(expected, abs=2e-3 if resized else 1e-5)


@pytest.mark.parametrize("kind", [*ONE_STAGE, *TWO_STAGES])
def test_scores_are_those_of_detections(operators: None, kind: str):
    shape = (64, 96)
    model, image = detector(kind), noise(1, *shape).pixels
    if kind in TWO_STAGES:
        model.roi_heads.mask_roi_pool = None  # masks take most of the time, and nothing is read of them
    with torch.no_grad():
        (found,) = model([torch.tensor(image).permute(2, 0, 1) / 255])
    expected = [float(found["scores"][found["labels"] == each].max()) for each in range(1, CLASSES)]
    assert np.ptp(expected) > 1e-3
    resized = kind == "ssd"
    assert ours(model, image)[1:] == pytest.approx(expected, abs=2e-3 if resized else 1e-5)


@pytest.mark.parametrize("shape", [(333, 500), (487, 341), (300, 900), (40, 110), (64, 64), (63, 65), (441, 640)])
@pytest.mark.parametrize("kind", ["retinanet", "ssd"])
def test_input_is_that_of_the_library(kind: str, shape: tuple[int, int]):
    """Photographs are reduced without antialiasing, as the library does it: noise tells the difference."""
    model, pixels = detector(kind), noise(1, *shape).pixels
    preprocess = read_preprocess(model, "net")
    view, box = preprocess.view(pixels)
    given, _ = model.transform([torch.tensor(pixels).permute(2, 0, 1) / 255])
    height, width = given.image_sizes[0]
    assert view.shape == (height, width, 3)
    assert box == (0, 0, shape[1], shape[0])
    differs = (preprocess.tensor(view) - given.tensors[0, :, :height, :width]).abs().amax()
    assert float(differs) < 0.51 / 255 / min(model.transform.image_std)  # half a level, to which views are rounded


def test_size_and_crop_of_the_user_are_taken():
    config = NetworkConfig(
        kind="network", name="net", network="ssdlite320_mobilenet_v3_large", size=160, crop=0.5, weights="untrained"
    )
    preprocess = StudiedNetwork.network(config, config.weights).preprocess
    view, box = preprocess.view(noise(1, 200, 200).pixels)
    assert view.shape == (160, 160, 3)
    assert box == (50, 50, 150, 150)


def test_detector_by_name_is_a_target_of_classes():
    """The normalisation is that of noise, because there is no dataset."""
    config = NetworkConfig(
        kind="network", name="net", network="torchvision:ssdlite320_mobilenet_v3_large@COCO_V1", weights="untrained",
        layers=["backbone.features.0", OUTPUT], size=96,
    )  # fmt: skip
    target = build(config, Site(key="target", pictures=lambda: None))
    info = target.info()
    assert info.layers[OUTPUT] == 91
    assert "the largest score of each class among the detector's boxes, without maps" in info.preprocessing
    assert "resized without antialiasing" in info.preprocessing
    image = noise(1, 96, 96)
    unit = Unit(target="net", layer=OUTPUT, index=17)
    (score,) = target.probe([Probe(unit=unit, image=image)])
    assert score.map is None
    assert 0 < score.value < 1
    inner = Unit(target="net", layer="backbone.features.0", index=0)
    (before, after) = target.intervene([Intervention(unit=inner, image=image, scale=each) for each in (1.0, 0.0)])
    assert before.shape == (91,)
    assert np.exp(before[17]) == pytest.approx(score.value, rel=1e-3)
    assert not np.array_equal(before, after)


def two_stage_target(layers: list[str]) -> NetworkTarget:
    model = detector("faster_rcnn")
    network = TargetNetwork(
        module=scored(model, "net"),
        preprocess=read_preprocess(model, "net"),
        labels=("", "boat", "dog", "tree"),
        output=OutputMeaning.SIGMOID,
    )
    return NetworkTarget("net", network, layers)


def test_two_stages_are_a_target_whose_units_have_effects(operators: None):
    target = two_stage_target(["backbone.first", OUTPUT])
    images = [noise(seed, 64, 64) for seed in (1, 2)]
    scores = [target.probe([Probe(unit=Unit(target="net", layer=OUTPUT, index=2), image=each)])[0] for each in images]
    assert all(each.map is None and 0 < each.value < 1 for each in scores)
    assert target.effects().classes == ("class 0", "boat", "dog", "tree")
    unit = Unit(target="net", layer="backbone.first", index=0)
    found = target.intervene(
        [Intervention(unit=unit, image=each, scale=scale) for scale in (1.0, 0.0) for each in images]
    )
    before, after = np.exp(found[:2]), np.exp(found[2:])
    assert before[:, 2] == pytest.approx([each.value for each in scores], rel=1e-3)
    assert (np.abs(after - before).max(axis=1) > 1e-4).all()
    assert np.abs(target.attribute("backbone.first", images).rises).max() > 1e-4


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("roi_heads.box_head", "no axis of it is that of the images"),
        ("rpn.head.conv", "is called 2 times in one forward pass"),
        ("roi_heads", "is not used in a forward pass"),
    ],
)
def test_layers_of_boxes_are_refused(operators: None, layer: str, message: str):
    with pytest.raises(UsageError, match=message):
        two_stage_target([layer])


def test_weights_of_the_library_fit(tmp_path: Path):
    name = "ssdlite320_mobilenet_v3_large"
    torch.manual_seed(1)
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None).eval()
    save_file({key: each.contiguous() for key, each in model.state_dict().items()}, tmp_path / "w.safetensors")
    network = load(name, str(tmp_path / "w.safetensors"))
    image = noise(2, 320, 320).pixels
    with torch.no_grad():
        found = network.module(network.preprocess.tensor(image)[None])[0].sigmoid().numpy()
    assert found == pytest.approx(scores(model, image), abs=1e-5)


def test_normalisation_is_that_of_the_weights():
    """Those of the first RetinaNet were converted from a program whose normalisation adds nothing to the variance."""
    for chosen, epsilon in (("retinanet_resnet50_fpn@COCO_V1", 0.0), ("retinanet_resnet50_fpn_v2@COCO_V1", 1e-5)):
        norms = [each for each in load(chosen, "untrained").module.modules() if isinstance(each, nn.BatchNorm2d)]
        assert {each.eps for each in norms} == {epsilon}


@pytest.mark.skipif(has_operators(), reason="torchvision has its operators")
def test_detector_of_two_stages_needs_operators():
    with pytest.raises(UsageError, match="selects boxes before it scores their classes.*such as retinanet_resnet50"):
        load("fasterrcnn_mobilenet_v3_large_320_fpn", "untrained")


def test_unknown_weights_of_a_detector_are_refused():
    with pytest.raises(UsageError, match="there are no such weights; expected one of COCO_V1"):
        load("torchvision:fcos_resnet50_fpn@IMAGENET1K_V1")
