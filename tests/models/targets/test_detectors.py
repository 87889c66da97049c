"""The class scores of detection networks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForObjectDetection

from openmaia.core.components import Site, build
from openmaia.core.services import Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.network import NetworkConfig
from openmaia.models.targets.networks import load
from openmaia.models.targets.networks.detectors import largest_log_odds
from tests.helpers.samples import noise
from tests.helpers.tiny.detectors import KINDS, LABELS, detector

torch.set_num_threads(1)


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind != "deformable_detr"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return detector(request.param, tmp_path_factory.mktemp(request.param))


def scores(folder: str, pixels: np.ndarray) -> np.ndarray:
    """The scores from which the library's own processor makes detections, the largest of each class."""
    model = AutoModelForObjectDetection.from_pretrained(folder).eval()
    given = AutoImageProcessor.from_pretrained(folder)(Image.fromarray(pixels), return_tensors="pt")
    with torch.no_grad():
        logits = model(given["pixel_values"]).logits[0]
    is_focal = model.config.model_type in ("conditional_detr", "deformable_detr", "rt_detr")
    each = logits.sigmoid() if is_focal else logits.softmax(1)[:, :-1]
    return each.amax(dim=0).numpy()


@pytest.mark.parametrize("shape", [(64, 64), (64, 96)])
def test_scores_are_the_largest_of_the_library(folder: str, shape: tuple[int, int]):
    """An image that the library does not resize either, so that both see the same."""
    network = load(f"hf:{folder}")
    pixels = noise(1, *shape).pixels
    view, _ = network.preprocess.view(pixels)
    with torch.no_grad():
        found = network.module(network.preprocess.tensor(view)[None])[0].sigmoid().numpy()
    expected = scores(folder, pixels)
    assert np.ptp(expected) > 1e-3
    assert found == pytest.approx(expected, abs=1e-5)


def test_scores_of_a_deformable_detr(tmp_path: Path):
    test_scores_are_the_largest_of_the_library(detector("deformable_detr", tmp_path), (64, 96))


def test_classes_are_units_without_maps(folder: str):
    config = NetworkConfig(kind="network", name="net", network=f"hf:{folder}", layers=[OUTPUT])
    target = build(config, Site(key="target"))
    image = noise(1, 64, 64)
    info = target.info()
    assert info.layers == {OUTPUT: len(LABELS)}
    assert info.classes == ("", "person", "red boat")
    assert "output: the largest score of each class among the detector's queries, without maps" in info.preprocessing
    (found,) = target.probe([Probe(unit=Unit(target="net", layer=OUTPUT, index=2), image=image)])
    assert found.map is None
    assert found.value == pytest.approx(scores(folder, image.pixels)[2], rel=1e-3)


@pytest.mark.parametrize("shape", [(333, 500), (487, 341), (300, 900), (400, 110), (64, 64), (63, 65), (640, 427)])
def test_input_has_the_size_of_the_library(folder: str, shape: tuple[int, int]):
    pixels = noise(1, *shape).pixels
    view, box = load(f"hf:{folder}").preprocess.view(pixels)
    given = AutoImageProcessor.from_pretrained(folder)(Image.fromarray(pixels), return_tensors="pt")
    assert view.shape[:2] == given["pixel_values"].shape[2:]
    assert box == (0, 0, shape[1], shape[0])


def test_score_of_a_certain_class_is_finite():
    logits = torch.tensor([[[200.0, 0.0, 0.0], [0.0, 0.0, 300.0]]])
    found = largest_log_odds(logits, 2).sigmoid()
    assert found[0].tolist() == pytest.approx([1.0, 1e-30], abs=1e-6)


def test_layers_have_the_names_of_the_library(tmp_path: Path):
    network = load(f"hf:{detector('detr', tmp_path)}")
    assert "model.encoder.layers.0" in dict(network.module.named_modules())
