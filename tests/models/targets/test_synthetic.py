"""Synthetic units through tiny random models, from the probe to the map, and the user's mistakes."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from openmaia.core.errors import HostDead, ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Probe, UnitActivation
from openmaia.core.units import Unit
from openmaia.models.targets.synthetic.detector import GroundingDino
from openmaia.models.targets.synthetic.rules import GRID, SIZE
from openmaia.models.targets.synthetic.target import SyntheticTarget
from openmaia.models.targets.synthetic.units import MODES
from tests.helpers.dissecting import dissect
from tests.helpers.looking import look
from tests.helpers.tiny import detection
from tests.helpers.tiny.detection import pictures

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def selective(detector: str) -> float:
    """A threshold at which the tiny detector finds a concept in every other picture."""
    pairs = [(image.pixels, concept) for image in pictures(3) for concept in ("sky", "bird", "cup", "dog", "water")]
    best = sorted(max(boxes.scores) for boxes in GroundingDino(detector, 0.0, CPU).detect(pairs))
    return (best[7] + best[8]) / 2


@pytest.fixture(scope="module", params=["repo", "paper"])
def target(request: pytest.FixtureRequest, detector: str, segmenter: str, selective: float) -> SyntheticTarget:
    return SyntheticTarget("tiny", detector, segmenter, request.param, box_threshold=selective)


def probes(count: int = 2) -> list[Probe]:
    """Units of all layers, mixed with pictures of several sizes."""
    shown = [*pictures(count), *pictures(1, (300, 180))]
    units = [Unit(target="tiny", layer=layer, index=index) for index in (0, 7, 17) for layer in MODES]
    return [Probe(unit=unit, image=image) for unit in units for image in shown]


def same(one: Sequence[UnitActivation], other: Sequence[UnitActivation]) -> bool:
    return all(
        a.value == b.value
        and a.box == b.box
        and a.map is not None
        and b.map is not None
        and np.array_equal(a.map, b.map)
        for a, b in zip(one, other, strict=True)
    )


def test_info_of_both_presets(detector: str, segmenter: str):
    targets = [
        SyntheticTarget("tiny", detector, segmenter, "repo"),
        SyntheticTarget("tiny", detector, segmenter, "paper"),
        SyntheticTarget("tiny", detector, "", "repo"),
        SyntheticTarget("tiny", detector, segmenter, "repo", box_threshold=0.5),
    ]
    assert targets[0].info().layers == {"mono": 47, "or": 18, "and": 20}
    assert targets[1].info().layers == {"mono": 45, "or": 24, "and": 19}
    assert targets[0].info().input_size == (224, 224) and targets[0].info().name == "tiny"
    assert len({target.info().digest for target in targets}) == 4
    assert SyntheticTarget("other", detector, segmenter, "repo").info().digest == targets[0].info().digest
    assert targets[0].concepts("or", 9) == ("dog", "car")
    assert targets[0].truth("or", 9) == "dog or car"


def test_digest_depends_on_weights(detector: str, tmp_path: Path):
    other = SyntheticTarget("tiny", detection.grounding_dino(tmp_path, seed=1), "", "repo").info().digest
    assert other != SyntheticTarget("tiny", detector, "", "repo").info().digest


def test_batch_equals_single_probes(target: SyntheticTarget, detector: str, segmenter: str, selective: float):
    asked = probes()
    together = target.probe(asked)
    preset = "repo" if target.info().layers["mono"] == 47 else "paper"
    for probe, answer in zip(asked[::7], together[::7], strict=True):
        fresh = SyntheticTarget("tiny", detector, segmenter, preset, box_threshold=selective)
        assert same(fresh.probe([probe]), [answer])


def test_activations_have_map_and_box(target: SyntheticTarget):
    asked = probes()
    answers = target.probe(asked)
    assert len({answer.value for answer in answers}) > 5
    for probe, answer in zip(asked, answers, strict=True):
        height, width = probe.image.pixels.shape[:2]
        assert answer.box == (0.0, 0.0, width, height)
        assert answer.map is not None and answer.map.shape == (GRID, GRID) and answer.map.dtype == np.float32
        assert answer.value == float(f"{answer.map.max():.5g}") and 0 <= answer.value <= 1


def test_and_unit_needs_both_concepts(target: SyntheticTarget, detector: str, selective: float):
    shown = pictures(2)
    finder = GroundingDino(detector, selective, CPU)
    repo = target.info().layers["mono"] == 47
    fired: list[bool] = []
    for index in range(8):
        concepts = target.concepts("and", index)
        unit = Unit(target="tiny", layer="and", index=index)
        for image in shown:
            (answer,) = target.probe([Probe(unit=unit, image=image)])
            present = [bool(boxes.scores) for boxes in finder.detect([(image.pixels, each) for each in concepts])]
            fired.append(answer.value > 0.1)
            assert fired[-1] == all(present)
            assert repo or all(present) or answer.value == 0
    assert 0 < sum(fired) < len(fired)


def test_cached_answer_is_unchanged(target: SyntheticTarget, detector: str, selective: float):
    asked = probes()
    first = target.probe(asked)
    assert same(target.probe(asked), first)
    assert same(target.probe(asked[::-1]), first[::-1])
    uncached = SyntheticTarget("tiny", detector, "", "repo", box_threshold=selective, cached=3)
    cached = SyntheticTarget("tiny", detector, "", "repo", box_threshold=selective)
    for _ in range(2):
        assert same(uncached.probe(asked), cached.probe(asked))


def test_each_pair_is_detected_once(detector: str, segmenter: str, selective: float):
    target = SyntheticTarget("tiny", detector, segmenter, "repo", box_threshold=selective)
    detected: list[int] = []
    embedded: list[int] = []
    target._detector._model.register_forward_hook(
        lambda _model, _given, kwargs, _output: detected.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    target._segmenter._model.vision_encoder.register_forward_hook(  # pyright: ignore
        lambda _model, given, _output: embedded.append(len(given[0]))
    )
    # dog or car, dog or bird, grass when dog is present, dog: four concepts.
    asked = [("or", 9), ("or", 14), ("and", 3), ("mono", 14)]
    shown = [*pictures(2), *pictures(2)]
    mixed = [Probe(unit=Unit(target="tiny", layer=layer, index=i), image=p) for layer, i in asked for p in shown]
    target.probe(mixed)
    assert sum(detected) == 2 * 4 and sum(embedded) == 2
    target.probe(mixed)
    assert sum(detected) == 2 * 4 and sum(embedded) == 2


def test_noise_depends_on_image_and_unit_alone(detector: str):
    # Above the highest score nothing is ever found.
    one, other = (SyntheticTarget(name, detector, "", "repo", box_threshold=1.0) for name in ("one", "other"))
    asked = [
        Probe(unit=Unit(target="one", layer="and", index=index), image=image)
        for index in range(4)
        for image in pictures(4)
    ]
    values = [answer.value for answer in one.probe(asked)]
    assert values == [answer.value for answer in other.probe(asked[::-1])][::-1]
    assert len(set(values)) > 6 and max(values) <= 0.1
    paper = SyntheticTarget("paper", detector, "", "paper", box_threshold=1.0)
    assert {answer.value for answer in paper.probe(asked)} == {0.0}


def test_whole_layer_equals_single_units(target: SyntheticTarget):
    (image,) = pictures(1, (300, 180))
    ((_, responses),) = look(target, [image.pixels])
    assert {layer: len(maps) for layer, maps in responses.items()} == target.info().layers
    for layer, maps in responses.items():
        units = [Unit(target="tiny", layer=layer, index=index) for index in range(len(maps))]
        answers = target.probe([Probe(unit=unit, image=image) for unit in units])
        for small, answer in zip(maps, answers, strict=True):
            assert answer.map is not None and np.array_equal(small, answer.map)


def test_view_equals_its_image(target: SyntheticTarget):
    (image,) = pictures(1, (300, 180))
    assert look(target, [image.pixels])[0][0] == (0, 0, 300, 180)
    view = EncodedImage.of(np.asarray(image.pil().resize((SIZE, SIZE), Image.Resampling.LANCZOS)))
    for layer in MODES:
        unit = Unit(target="tiny", layer=layer, index=3)
        one, other = target.probe([Probe(unit=unit, image=image), Probe(unit=unit, image=view)])
        assert one.value == other.value


def test_exemplars_reproduce_their_activations(target: SyntheticTarget):
    units = [Unit(target="tiny", layer=layer, index=index) for layer in MODES for index in (0, 3)]
    for summary in dissect(target, pictures(2), units, k=2, quantile=0.99):
        top = summary.of_kind("top")
        answers = target.probe([Probe(unit=summary.unit, image=each.image) for each in top])
        assert [answer.value for answer in answers] == [each.activation for each in top]


def test_published_thresholds_run(detector: str):
    target = SyntheticTarget("tiny", detector, "", "repo")
    answers = target.probe(probes())
    assert all(answer.value > 0.25 for answer in answers)


@pytest.mark.parametrize(
    ("fault", "error"), [(torch.OutOfMemoryError, ServiceError), (torch.AcceleratorError, HostDead)]
)
def test_gpu_failure_is_a_service_error(detector: str, fault: type[Exception], error: type[Exception]):
    target = SyntheticTarget("tiny", detector, "", "repo")

    def strike(_model: torch.nn.Module, _given: object) -> None:
        raise fault("GPU")

    handle = target._detector._model.register_forward_pre_hook(strike)
    with pytest.raises(ServiceError) as caught:
        target.probe(probes()[:1])
    assert type(caught.value) is error
    handle.remove()
    assert target.probe(probes()[:1])


def fails(expected: str, *arguments: str) -> None:
    with pytest.raises(UsageError, match=expected):
        SyntheticTarget("tiny", *arguments)


def test_unknown_preset_is_refused(detector: str):
    fails("target.units='both' is not known; expected repo or paper", detector, "", "both")


def test_missing_models_are_refused(detector: str, tmp_path: Path):
    gone = re.escape(str(tmp_path / "gone"))
    fails(
        f"target.detector='{gone}' cannot be read.*IDEA-Research/grounding-dino-tiny",
        str(tmp_path / "gone"),
        "",
        "repo",
    )
    fails(f"target.segmenter='{gone}' cannot be read.*facebook/sam-vit", detector, str(tmp_path / "gone"), "repo")


def test_models_of_another_kind_are_refused(detector: str, segmenter: str):
    fails("target.detector=.* is a model of type 'sam'.*grounding-dino", segmenter, "", "repo")
    fails("target.segmenter=.* is a model of type 'grounding-dino'.*sam", detector, detector, "repo")


def test_truncated_checkpoint_is_refused(tmp_path: Path):
    folder = detection.grounding_dino(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    fails("target.detector=.* cannot be loaded", folder, "", "repo")


def test_incomplete_checkpoint_is_refused(detector: str, tmp_path: Path):
    folder = detection.sam(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name in weights if name.startswith("mask_decoder"))
    save_file({key: value for key, value in weights.items() if key != name}, tmp_path / "model.safetensors")
    fails(f"target.segmenter=.* lacks 1 weights, such as {re.escape(name)}", detector, folder, "repo")


def test_weights_of_another_shape_are_refused(detector: str, tmp_path: Path):
    folder = detection.sam(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name in weights if name.startswith("mask_decoder") and weights[name].ndim == 2)
    save_file(weights | {name: torch.zeros(3, 5)}, tmp_path / "model.safetensors")
    fails("target.segmenter=.* cannot be loaded", detector, folder, "repo")


def test_folder_without_processor_is_refused(tmp_path: Path):
    folder = detection.grounding_dino(tmp_path)
    for file in tmp_path.glob("*.json"):
        if file.name != "config.json":
            file.unlink()
    fails("target.detector=.* cannot be loaded", folder, "", "repo")
