"""Mask IoU from graded activations, by hand; and a detector as the judge that knows where."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.evaluate.detection import detect
from openmaia.evaluate.judges import Verdict
from openmaia.evaluate.masks import Locator, Region, graded, mask_iou, seen_part
from openmaia.images import Picture
from openmaia.services import Activation
from openmaia.targets.synthetic.judge import DetectorJudge
from tests.samples import noise
from tests.tiny import detection as tiny

PICTURES = [noise(at, 20, 20) for at in range(2)]
WHOLE = (0.0, 0.0, 20.0, 20.0)


def answer(rows: list[list[float]], box: tuple[float, float, float, float] = WHOLE) -> Activation:
    return Activation(value=0.0, map=np.array(rows, np.float32), box=box)


def region(rows: list[list[int]]) -> Region:
    return np.array(rows, np.bool_)


ANSWERS = [answer([[0, 0], [0, 4]]), answer([[0, 2], [0, 0]])]
REGIONS = [region([[0, 0], [1, 1]]), region([[0, 0], [0, 0]])]


def test_mask_iou_by_hand():
    """Median 0, highest 4: degrees 0 0 0 1 and 0 0.5 0 0. Common: 1. Either: 0 0 1 1 and 0 0.5 0 0, 2.5 together."""
    assert mask_iou(PICTURES, REGIONS, ANSWERS, np.ones(2)) == pytest.approx(1 / 2.5)


def test_pictures_count_by_their_weight():
    """The second picture three times: 1 over 2 + 3 * 0.5."""
    assert mask_iou(PICTURES, REGIONS, ANSWERS, np.array([1.0, 3.0])) == pytest.approx(1 / 3.5)


def test_a_unit_that_responds_just_there_has_one_and_elsewhere_none():
    there, elsewhere = answer([[0, 0], [0, 1]]), answer([[1, 0], [0, 0]])
    where = [region([[0, 0], [0, 1]])]
    assert mask_iou(PICTURES[:1], where, [there], np.ones(1)) == 1
    assert mask_iou(PICTURES[:1], where, [elsewhere], np.ones(1)) == 0


def test_only_what_the_network_saw_counts():
    """The network cut off the left half, where the region lies."""
    seen = answer([[0, 0], [0, 1]], box=(10.0, 0.0, 20.0, 20.0))
    where = region([[1, 1, 0, 0], [1, 1, 0, 1]])
    assert seen_part(PICTURES[0], where, seen).tolist() == [[False, False], [False, True]]
    assert mask_iou(PICTURES[:1], [where], [seen], np.ones(1)) == 1


def test_without_maps_places_or_variation_there_is_no_number():
    flat = Activation(value=1.0, map=None, box=WHOLE)
    assert mask_iou(PICTURES, REGIONS, [flat, flat], np.ones(2)) is None
    assert mask_iou(PICTURES, [REGIONS[1]] * 2, ANSWERS, np.ones(2)) is None
    assert mask_iou(PICTURES, REGIONS, [answer([[3, 3], [3, 3]])] * 2, np.ones(2)) is None
    assert mask_iou([], [], [], np.ones(0)) is None


def test_graded_iou_of_sharp_masks_is_the_plain_one():
    random = np.random.default_rng(0)
    inside, active = random.random(400) < 0.3, random.random(400) < 0.3
    found = graded(inside.astype(float), active.astype(float), np.ones(400))
    assert found == pytest.approx((inside & active).sum() / (inside | active).sum())


class Corner:
    """Sees everything everywhere below the diagonal, and says so."""

    name = "corner"

    def judge(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[tuple[Verdict, ...]]:
        return [(True,) * len(labels) for _ in pictures]

    def locate(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[Region]:
        return [np.tri(4, k=-1, dtype=np.bool_) for _ in pictures]


def test_detection_has_a_mask_iou_where_the_judge_knows_places():
    pictures = [noise(at, 20, 20) for at in range(8)]
    values = np.arange(8.0)

    def probe(asked: Sequence[Picture]) -> list[Activation]:
        return [answer(np.tri(4, k=-1).tolist()) for _ in asked]

    found = detect(["x"], pictures, values, Corner(), 8, probe)
    assert found["mask_iou"] == pytest.approx(1.0)
    assert "mask_iou" not in detect(["x"], pictures, values, Corner(), 8)


def test_a_detector_judges_and_locates_alike(tmp_path: Path):
    judge = DetectorJudge(tiny.grounding_dino(tmp_path), threshold=0.5)
    assert isinstance(judge, Locator)
    assert "boxes" in judge.name
    pictures = [noise(at, 40, 60) for at in range(3)]
    verdicts = judge.judge(pictures, ["dog", "sky"])
    regions = judge.locate(pictures, ["dog", "sky"])
    assert [any(row) for row in verdicts] == [bool(region.any()) for region in regions]
    assert len({region.shape for region in regions}) == 1
    never = DetectorJudge(tiny.grounding_dino(tmp_path), threshold=1.0)
    assert never.judge(pictures[:1], ["dog"]) == [(False,)]
    assert not never.locate(pictures[:1], ["dog"])[0].any()


def test_synthetic_units_are_not_judged_by_what_they_are_made_of():
    with pytest.raises(UsageError, match="the detector that they are made of"):
        load(["name=x", "units=all", "target.kind=synthetic", "target.name=s", "evaluate.judge=detector"])
