"""Synthetic units: their lists, the rules of both presets, and the whole path through tiny random models."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import GroundingDinoForObjectDetection, GroundingDinoProcessor, SamModel, SamProcessor

from openmaia.dissection.exemplars import dissect
from openmaia.errors import UsageError
from openmaia.images import Picture
from openmaia.services import Activation, Probe
from openmaia.targets.synthetic.detector import Detector
from openmaia.targets.synthetic.rules import GRID, PRESETS, SIZE, Found, activation, combine, small_mask
from openmaia.targets.synthetic.segmenter import BoxSegmenter, SamSegmenter, box_mask
from openmaia.targets.synthetic.target import SyntheticTarget
from openmaia.targets.synthetic.units import LAYERS, read, truth
from openmaia.units import Unit
from tests.tiny import detection

CPU = torch.device("cpu")

SELECTIVE = 0.996
"""A threshold at which the tiny detector finds some concepts in some pictures, and others not."""

CONCEPTS = ("stripes", "bird", "car window", "dog", "sky")


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> str:
    return detection.grounding_dino(tmp_path_factory.mktemp("detector"))


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> str:
    return detection.sam(tmp_path_factory.mktemp("segmenter"))


@pytest.fixture(scope="module", params=["repo", "paper"])
def target(request: pytest.FixtureRequest, detector: str, segmenter: str) -> SyntheticTarget:
    return SyntheticTarget("tiny", detector, segmenter, request.param, box_threshold=SELECTIVE)


def pictures(count: int, size: tuple[int, int] = (SIZE, SIZE)) -> list[Picture]:
    """Random blots, coarser from picture to picture."""
    random = np.random.default_rng(0)
    small = [random.integers(0, 256, (count + 1 - i, count + 1 - i, 3), dtype=np.uint8) for i in range(count)]
    return [Picture.of(np.asarray(Image.fromarray(each).resize(size))) for each in small]


def probes(count: int = 3) -> list[Probe]:
    """Units of all layers, mixed with pictures of several sizes."""
    shown = [*pictures(count), *pictures(1, (300, 180))]
    units = [Unit(target="tiny", layer=layer, index=index) for index in (0, 7, 17) for layer in LAYERS]
    return [Probe(unit=unit, picture=picture) for unit in units for picture in shown]


def same(one: Sequence[Activation], other: Sequence[Activation]) -> bool:
    return all(
        a.value == b.value
        and a.box == b.box
        and a.map is not None
        and b.map is not None
        and np.array_equal(a.map, b.map)
        for a, b in zip(one, other, strict=True)
    )


# The lists


@pytest.mark.parametrize(("preset", "counts"), [("repo", (47, 18, 20)), ("paper", (45, 24, 19))])
def test_lists_have_the_published_lengths(preset: str, counts: tuple[int, ...]):
    units = read(preset)
    assert tuple(len(units[layer]) for layer in LAYERS) == counts
    assert {len(concepts) for concepts in units["mono"]} == {1}
    assert {len(concepts) for layer in ("or", "and") for concepts in units[layer]} == {2}
    assert all(len(set(listed)) == len(listed) for listed in units.values())


def test_concepts_keep_their_order_and_their_blanks():
    assert read("repo")["mono"][38] == ("car window",)
    assert read("repo")["and"][3] == ("grass", "dog")
    assert read("paper")["and"][9] == ("grass", "dog")


def test_truth_in_words():
    assert truth("mono", ("bird",)) == "bird"
    assert truth("or", ("dog", "car")) == "dog or car"
    assert truth("and", ("grass", "dog")) == "grass, when dog is present too"


# The rules


def found(value: float, cells: slice) -> Found:
    mask = np.zeros((GRID, GRID), dtype=bool)
    mask[cells] = value > 0
    return Found(boxes=int(value > 0), activation=value, mask=mask)


UPPER, LOWER = slice(0, 28), slice(28, 56)


@pytest.mark.parametrize(
    ("preset", "layer", "one", "other", "value", "rows"),
    [
        ("repo", "mono", 0.6, None, 0.6, 28),
        ("repo", "mono", 0.0, None, 0.0, 0),
        ("repo", "or", 0.6, 0.8, 0.8, 56),
        ("repo", "or", 0.6, 0.0, 0.6, 28),
        ("repo", "or", 0.0, 0.8, 0.8, 28),
        ("repo", "or", 0.0, 0.0, 0.0, 0),
        ("paper", "or", 0.6, 0.8, 0.7, 56),
        ("paper", "or", 0.6, 0.0, 0.6, 28),
        ("paper", "or", 0.0, 0.8, 0.8, 28),
        ("paper", "or", 0.0, 0.0, 0.0, 0),
        ("repo", "and", 0.6, 0.8, 0.6, 28),
        ("paper", "and", 0.6, 0.8, 0.6, 28),
        ("paper", "and", 0.6, 0.0, 0.0, 0),
        ("paper", "and", 0.0, 0.8, 0.0, 0),
        ("paper", "and", 0.0, 0.0, 0.0, 0),
    ],
)
def test_truth_tables(preset: str, layer: str, one: float, other: float | None, value: float, rows: int):
    concepts = [found(one, UPPER)] + ([] if other is None else [found(other, LOWER)])
    answer = combine(layer, concepts, PRESETS[preset], "lot")
    assert answer.shape == (GRID, GRID) and answer.dtype == np.float32
    assert answer.max() == pytest.approx(value)
    # Any threshold between 0 and the activation shows the same mask.
    for threshold in (0.0, value * 0.99):
        assert (answer > threshold).sum() == rows * GRID


@pytest.mark.parametrize(("one", "other"), [(0.6, 0.0), (0.0, 0.8), (0.0, 0.0)])
def test_an_and_unit_without_both_concepts_answers_published_noise(one: float, other: float):
    def answer(lot: str) -> float:
        shown = combine("and", [found(one, UPPER), found(other, LOWER)], PRESETS["repo"], lot)
        assert (shown > 0).sum() <= 1
        return round(float(shown.max()), 5)

    values = [answer(f"picture {i}") for i in range(300)]
    assert values == [answer(f"picture {i}") for i in range(300)]
    assert all(value == round(value, 2) for value in values)
    assert (min(values), max(values)) == (0.0, 0.1)
    assert np.mean(values) == pytest.approx(0.05, abs=0.006)


def test_scores_are_averaged_and_in_repo_cut_off_after_two_decimals():
    assert activation([0.819, 0.401], PRESETS["paper"]) == pytest.approx(0.61)
    assert activation([0.819, 0.409], PRESETS["repo"]) == pytest.approx((0.81 + 0.40) / 2)
    assert activation([0.29], PRESETS["repo"]) == 0.28 or activation([0.29], PRESETS["repo"]) == 0.29
    assert activation([], PRESETS["repo"]) == activation([], PRESETS["paper"]) == 0.0


def test_masks_grow_in_repo_as_measured_on_the_published_code():
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    mask[90:135, 90:135] = True
    assert mask.mean() == pytest.approx(0.04, abs=0.001)
    assert small_mask(mask, PRESETS["repo"]).mean() == pytest.approx(0.124, abs=0.003)


def test_masks_stay_as_they_are_in_paper():
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    mask[88:132, 40:60] = True
    small = small_mask(mask, PRESETS["paper"])
    assert small[22:33, 10:15].all() and small.sum() == 11 * 5


def test_a_small_mask_stays_and_an_empty_one_stays_empty():
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    assert not small_mask(mask, PRESETS["paper"]).any() and not small_mask(mask, PRESETS["repo"]).any()
    mask[101, 202] = True
    assert np.argwhere(small_mask(mask, PRESETS["paper"])).tolist() == [[25, 50]]
    assert small_mask(~mask, PRESETS["paper"]).all()


# The models


def test_detector_finds_what_transformers_own_reading_finds(detector: str):
    picture = pictures(1)[0].pixels
    model = GroundingDinoForObjectDetection.from_pretrained(detector).eval()
    processor = GroundingDinoProcessor.from_pretrained(detector)
    for concept in CONCEPTS:
        inputs = processor(images=np.array(picture), text=f"{concept}.", do_resize=False, return_tensors="pt")
        with torch.inference_mode():
            output = model(**inputs)
        scores = output.logits.sigmoid().amax(dim=-1)
        # Between two scores, so that rounding cannot decide.
        threshold = float(scores.sort().values[0, 9:11].mean())
        (expected,) = processor.post_process_grounded_object_detection(
            output, inputs.input_ids, threshold=threshold, text_threshold=0.25, target_sizes=[(1, 1)]
        )
        (boxes,) = Detector(detector, threshold, CPU).detect([(picture, concept)])
        assert len(boxes.scores) == 10
        assert boxes.scores == pytest.approx(expected["scores"].tolist(), abs=1e-5)
        assert boxes.corners == pytest.approx(expected["boxes"].numpy(), abs=1e-4)


def test_detector_answers_a_batch_as_one_by_one(detector: str):
    pairs = [(picture.pixels, concept) for picture in pictures(3) for concept in CONCEPTS]
    together = Detector(detector, 0.0, CPU, batch=16).detect(pairs)
    single = Detector(detector, 0.0, CPU, batch=1)
    alone = [single.detect([pair])[0] for pair in pairs]
    assert len({boxes.scores for boxes in alone}) == len(pairs)
    for one, other in zip(together, alone, strict=True):
        assert len(one.scores) == 20
        # In batches of another size the last of five digits may be the next one.
        assert one.scores == pytest.approx(other.scores, rel=1e-4)
        assert one.corners == pytest.approx(other.corners, abs=2e-4)


def test_neighbours_in_a_batch_change_nothing(detector: str):
    """More than rounding would come of padding, or of anything that is kept from pair to pair."""
    one, other = (each.pixels for each in pictures(2))
    each = Detector(detector, 0.0, CPU)
    first = each.detect([(one, "bird")])
    mixed = each.detect([(other, "car window"), (one, "bird"), (one, "dog"), (other, "bird")])
    assert mixed[1].scores == first[0].scores and np.array_equal(mixed[1].corners, first[0].corners)


def test_queries_are_lower_case(detector: str):
    picture, each = pictures(1)[0].pixels, Detector(detector, 0.0, CPU)
    assert each.detect([(picture, "Bird")])[0].scores == each.detect([(picture, "bird")])[0].scores


def test_sam_draws_what_transformers_own_pipeline_draws(segmenter: str):
    picture = pictures(2)[1].pixels
    model, processor = SamModel.from_pretrained(segmenter).eval(), SamProcessor.from_pretrained(segmenter)
    corners = np.array([[0.1, 0.2, 0.5, 0.6], [0.4, 0.0, 0.9, 0.3], [0.0, 0.5, 1.0, 1.0]])
    inputs = processor(np.array(picture), input_boxes=[(corners * SIZE).tolist()], return_tensors="pt")
    with torch.inference_mode():
        output = model(
            pixel_values=inputs["pixel_values"], input_boxes=inputs["input_boxes"].float(), multimask_output=False
        )
    (expected,) = processor.post_process_masks(
        output.pred_masks, inputs["original_sizes"], inputs["reshaped_input_sizes"]
    )
    masks = SamSegmenter(segmenter, CPU).masks(picture, [corners[:1], corners[:0], corners[1:]])
    assert [mask.shape for mask in masks] == [(SIZE, SIZE)] * 3
    assert 0 < masks[0].mean() < 1 and not masks[1].any()
    assert np.array_equal(masks[0], expected[0, 0].numpy())
    assert np.array_equal(masks[2], expected[1:, 0].numpy().any(axis=0))


def test_sam_takes_more_boxes_than_fit_in_one_pass(segmenter: str):
    random = np.random.default_rng(1)
    starts = random.uniform(0, 0.6, (70, 2))
    corners = np.concatenate([starts, starts + random.uniform(0.1, 0.4, (70, 2))], axis=1)
    picture, sam = pictures(1)[0].pixels, SamSegmenter(segmenter, CPU)
    together = sam.masks(picture, [corners[i : i + 1] for i in range(70)])
    for i in (0, 31, 32, 69):
        assert (together[i] != sam.masks(picture, [corners[i : i + 1]])[0]).mean() < 0.001


def test_a_box_in_which_sam_finds_nothing_is_its_own_mask(segmenter: str, tmp_path: Path):
    model = SamModel.from_pretrained(segmenter)
    with torch.no_grad():
        for weight in model.mask_decoder.upscale_conv2.parameters():
            weight.zero_()
    model.save_pretrained(tmp_path)
    SamProcessor.from_pretrained(segmenter).save_pretrained(tmp_path)
    corners = np.array([[0.25, 0.25, 0.5, 0.75], [0.5, 0.0, 1.0, 0.25]])
    masks = SamSegmenter(str(tmp_path), CPU).masks(pictures(1)[0].pixels, [corners])
    assert np.array_equal(masks[0], box_mask(corners, SIZE, SIZE))


def test_boxes_as_masks_stay_inside_the_picture_and_never_vanish():
    corners = np.array([[-0.5, 0.5, 0.25, 2.0]])
    (mask,) = BoxSegmenter().masks(np.zeros((100, 200, 3), dtype=np.uint8), [corners])
    assert mask[50:, :50].all() and mask.sum() == 50 * 50
    for thin in ([1.2, 1.2, 1.3, 1.3], [0.5, 0.5, 0.5, 0.5], [-0.4, -0.4, -0.2, -0.2]):
        assert box_mask(np.array([thin]), 100, 200).sum() == 1


# The target


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


def test_other_weights_have_another_digest(detector: str, tmp_path: Path):
    other = SyntheticTarget("tiny", detection.grounding_dino(tmp_path, seed=1), "", "repo").info().digest
    assert other != SyntheticTarget("tiny", detector, "", "repo").info().digest


def test_a_batch_answers_as_one_by_one(target: SyntheticTarget, detector: str, segmenter: str):
    asked = probes()
    together = target.probe(asked)
    preset = "repo" if target.info().layers["mono"] == 47 else "paper"
    for probe, answer in zip(asked[::5], together[::5], strict=True):
        fresh = SyntheticTarget("tiny", detector, segmenter, preset, box_threshold=SELECTIVE)
        assert same(fresh.probe([probe]), [answer])


def test_answers_have_the_shape_of_a_networks(target: SyntheticTarget):
    asked = probes()
    answers = target.probe(asked)
    assert len({answer.value for answer in answers}) > 5
    for probe, answer in zip(asked, answers, strict=True):
        height, width = probe.picture.pixels.shape[:2]
        assert answer.box == (0.0, 0.0, width, height)
        assert answer.map is not None and answer.map.shape == (GRID, GRID) and answer.map.dtype == np.float32
        assert answer.value == float(f"{answer.map.max():.5g}") and 0 <= answer.value <= 1


def test_and_units_fire_with_both_concepts_only(target: SyntheticTarget, detector: str):
    shown = pictures(4)
    finder = Detector(detector, SELECTIVE, CPU)
    repo = target.info().layers["mono"] == 47
    fired: list[bool] = []
    for index in range(target.info().layers["and"]):
        concepts = target.concepts("and", index)
        unit = Unit(target="tiny", layer="and", index=index)
        for picture in shown:
            (answer,) = target.probe([Probe(unit=unit, picture=picture)])
            present = [bool(boxes.scores) for boxes in finder.detect([(picture.pixels, each) for each in concepts])]
            fired.append(answer.value > 0.1)
            assert fired[-1] == all(present)
            assert repo or all(present) or answer.value == 0
    assert 0 < sum(fired) < len(fired)


def test_a_kept_answer_is_the_answer(target: SyntheticTarget, detector: str):
    asked = probes()
    first = target.probe(asked)
    assert same(target.probe(asked), first)
    assert same(target.probe(asked[::-1]), first[::-1])
    uncached = SyntheticTarget("tiny", detector, "", "repo", box_threshold=SELECTIVE, cached=3)
    cached = SyntheticTarget("tiny", detector, "", "repo", box_threshold=SELECTIVE)
    for _ in range(2):
        assert same(uncached.probe(asked), cached.probe(asked))


def test_each_pair_is_detected_once_and_each_picture_embedded_once(detector: str, segmenter: str):
    target = SyntheticTarget("tiny", detector, segmenter, "repo", box_threshold=SELECTIVE)
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
    mixed = [Probe(unit=Unit(target="tiny", layer=layer, index=i), picture=p) for layer, i in asked for p in shown]
    target.probe(mixed)
    assert sum(detected) == 2 * 4 and sum(embedded) == 2
    target.probe(mixed)
    assert sum(detected) == 2 * 4 and sum(embedded) == 2


def test_noise_depends_on_picture_and_unit_alone(detector: str):
    # Above the highest score nothing is ever found.
    one, other = (SyntheticTarget(name, detector, "", "repo", box_threshold=1.0) for name in ("one", "other"))
    asked = [
        Probe(unit=Unit(target="one", layer="and", index=index), picture=picture)
        for index in range(4)
        for picture in pictures(4)
    ]
    values = [answer.value for answer in one.probe(asked)]
    assert values == [answer.value for answer in other.probe(asked[::-1])][::-1]
    assert len(set(values)) > 6 and max(values) <= 0.1
    paper = SyntheticTarget("paper", detector, "", "paper", box_threshold=1.0)
    assert {answer.value for answer in paper.probe(asked)} == {0.0}


def test_whole_layers_answer_as_single_units(target: SyntheticTarget):
    (picture,) = pictures(1, (300, 180))
    responses, box = target.respond(picture)
    assert box == (0.0, 0.0, 300.0, 180.0)
    assert {layer: len(maps) for layer, maps in responses.items()} == target.info().layers
    for layer, maps in responses.items():
        units = [Unit(target="tiny", layer=layer, index=index) for index in range(len(maps))]
        answers = target.probe([Probe(unit=unit, picture=picture) for unit in units])
        for small, answer in zip(maps, answers, strict=True):
            assert answer.map is not None and np.array_equal(small, answer.map)


def test_a_view_answers_as_its_picture(target: SyntheticTarget):
    (picture,) = pictures(1, (300, 180))
    view = target.view(picture)
    assert view.pixels.shape == (SIZE, SIZE, 3)
    for layer in LAYERS:
        unit = Unit(target="tiny", layer=layer, index=3)
        one, other = target.probe([Probe(unit=unit, picture=picture), Probe(unit=unit, picture=view)])
        assert one.value == other.value


def test_exemplars_give_their_activations_again(target: SyntheticTarget):
    units = [Unit(target="tiny", layer=layer, index=index) for layer in LAYERS for index in (0, 3)]
    for summary in dissect(target, pictures(5), 5, units, k=3, quantile=0.99):
        top = summary.of_kind("top")
        answers = target.probe([Probe(unit=summary.unit, picture=each.picture) for each in top])
        assert [answer.value for answer in answers] == [each.activation for each in top]


def test_real_thresholds_run_from_end_to_end(detector: str):
    target = SyntheticTarget("tiny", detector, "", "repo")
    answers = target.probe(probes())
    assert all(answer.value > 0.25 for answer in answers)


# The user's mistakes


def fails(expected: str, *arguments: str) -> None:
    with pytest.raises(UsageError, match=expected):
        SyntheticTarget("tiny", *arguments)


def test_an_unknown_preset_is_refused(detector: str):
    fails("target.units='both' is not known; expected repo or paper", detector, "", "both")


def test_models_that_are_not_there_are_named(detector: str, tmp_path: Path):
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


def test_a_truncated_checkpoint_is_refused(tmp_path: Path):
    folder = detection.grounding_dino(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    fails("target.detector=.* cannot be loaded", folder, "", "repo")


def test_a_checkpoint_that_lacks_weights_is_refused(detector: str, tmp_path: Path):
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


def test_a_folder_without_a_processor_is_refused(tmp_path: Path):
    folder = detection.grounding_dino(tmp_path)
    for file in tmp_path.glob("*.json"):
        if file.name != "config.json":
            file.unlink()
    fails("target.detector=.* cannot be loaded", folder, "", "repo")
