"""The detector and the segmenter of synthetic units, as tiny random models, against transformers' own pipelines."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GroundingDinoForObjectDetection, GroundingDinoProcessor, SamModel, SamProcessor

from openmaia.models.targets.synthetic.detector import GroundingDino
from openmaia.models.targets.synthetic.rules import SIZE
from openmaia.models.targets.synthetic.segmenter import BoxSegmenter, SamSegmenter, draw_boxes
from tests.helpers.tiny.detection import pictures

CPU = torch.device("cpu")

CONCEPTS = ("stripes", "bird", "car window", "dog", "sky")


def test_detector_equals_transformers(detector: str):
    image = pictures(1)[0].pixels
    model = GroundingDinoForObjectDetection.from_pretrained(detector).eval()
    processor = GroundingDinoProcessor.from_pretrained(detector)
    for concept in CONCEPTS:
        inputs = processor(images=np.array(image), text=f"{concept}.", do_resize=False, return_tensors="pt")
        with torch.inference_mode():
            output = model(**inputs)
        scores = output.logits.sigmoid().amax(dim=-1)
        # Between two scores, so that rounding cannot decide.
        threshold = float(scores.sort().values[0, 9:11].mean())
        (expected,) = processor.post_process_grounded_object_detection(
            output, inputs.input_ids, threshold=threshold, text_threshold=0.25, target_sizes=[(1, 1)]
        )
        (boxes,) = GroundingDino(detector, threshold, CPU).detect([(image, concept)])
        assert len(boxes.scores) == 10
        assert boxes.scores == pytest.approx(expected["scores"].tolist(), abs=1e-5)
        assert boxes.corners == pytest.approx(expected["boxes"].numpy(), abs=1e-4)


def test_detector_batch_equals_single_pairs(detector: str):
    pairs = [(image.pixels, concept) for image in pictures(3) for concept in CONCEPTS]
    together = GroundingDino(detector, 0.0, CPU, batch=16).detect(pairs)
    single = GroundingDino(detector, 0.0, CPU, batch=1)
    alone = [single.detect([pair])[0] for pair in pairs]
    assert len({boxes.scores for boxes in alone}) == len(pairs)
    for one, other in zip(together, alone, strict=True):
        assert len(one.scores) == 20
        # In batches of another size the last of five digits may be the next one.
        assert one.scores == pytest.approx(other.scores, rel=1e-4)
        assert one.corners == pytest.approx(other.corners, abs=2e-4)


def test_detector_ignores_other_pairs(detector: str):
    """More than rounding would come of padding, or of anything that is kept from pair to pair."""
    one, other = (each.pixels for each in pictures(2))
    each = GroundingDino(detector, 0.0, CPU)
    first = each.detect([(one, "bird")])
    mixed = each.detect([(other, "car window"), (one, "bird"), (one, "dog"), (other, "bird")])
    assert mixed[1].scores == first[0].scores and np.array_equal(mixed[1].corners, first[0].corners)


def test_concepts_are_lower_cased(detector: str):
    image, each = pictures(1)[0].pixels, GroundingDino(detector, 0.0, CPU)
    assert each.detect([(image, "Bird")])[0].scores == each.detect([(image, "bird")])[0].scores


def test_sam_equals_transformers(segmenter: str):
    image = pictures(2)[1].pixels
    model, processor = SamModel.from_pretrained(segmenter).eval(), SamProcessor.from_pretrained(segmenter)
    corners = np.array([[0.1, 0.2, 0.5, 0.6], [0.4, 0.0, 0.9, 0.3], [0.0, 0.5, 1.0, 1.0]])
    inputs = processor(np.array(image), input_boxes=[(corners * SIZE).tolist()], return_tensors="pt")
    with torch.inference_mode():
        output = model(
            pixel_values=inputs["pixel_values"], input_boxes=inputs["input_boxes"].float(), multimask_output=False
        )
    (expected,) = processor.post_process_masks(
        output.pred_masks, inputs["original_sizes"], inputs["reshaped_input_sizes"]
    )
    masks = SamSegmenter(segmenter, CPU).masks(image, [corners[:1], corners[:0], corners[1:]])
    assert [mask.shape for mask in masks] == [(SIZE, SIZE)] * 3
    assert 0 < masks[0].mean() < 1 and not masks[1].any()
    assert np.array_equal(masks[0], expected[0, 0].numpy())
    assert np.array_equal(masks[2], expected[1:, 0].numpy().any(axis=0))


def test_sam_splits_many_boxes(segmenter: str):
    random = np.random.default_rng(1)
    starts = random.uniform(0, 0.6, (70, 2))
    corners = np.concatenate([starts, starts + random.uniform(0.1, 0.4, (70, 2))], axis=1)
    image, sam = pictures(1)[0].pixels, SamSegmenter(segmenter, CPU)
    together = sam.masks(image, [corners[i : i + 1] for i in range(70)])
    for i in (0, 31, 32, 69):
        assert (together[i] != sam.masks(image, [corners[i : i + 1]])[0]).mean() < 0.001


def test_empty_sam_mask_becomes_the_box(segmenter: str, tmp_path: Path):
    model = SamModel.from_pretrained(segmenter)
    with torch.no_grad():
        for weight in model.mask_decoder.upscale_conv2.parameters():
            weight.zero_()
    model.save_pretrained(tmp_path)
    SamProcessor.from_pretrained(segmenter).save_pretrained(tmp_path)
    corners = np.array([[0.25, 0.25, 0.5, 0.75], [0.5, 0.0, 1.0, 0.25]])
    masks = SamSegmenter(str(tmp_path), CPU).masks(pictures(1)[0].pixels, [corners])
    assert np.array_equal(masks[0], draw_boxes(corners, SIZE, SIZE))


def test_box_masks_stay_inside_and_never_vanish():
    corners = np.array([[-0.5, 0.5, 0.25, 2.0]])
    (mask,) = BoxSegmenter().masks(np.zeros((100, 200, 3), dtype=np.uint8), [corners])
    assert mask[50:, :50].all() and mask.sum() == 50 * 50
    for thin in ([1.2, 1.2, 1.3, 1.3], [0.5, 0.5, 0.5, 0.5], [-0.4, -0.4, -0.2, -0.2]):
        assert draw_boxes(np.array([thin]), 100, 200).sum() == 1
