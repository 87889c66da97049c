"""Fuzzing on photographs: which parts are shown to the judge, and the balanced accuracy by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from measure.science.sanity import seen_in
from openmaia.core.images import EncodedImage
from openmaia.core.services import UnitActivation
from openmaia.evaluation.judging.fuzzing import CELLS, OVERLAP, SIDE, fuzz, part, parts
from openmaia.evaluation.judging.judges import ImageVerdict
from openmaia.offline.collage.compose import layout
from openmaia.offline.collage.scene import CollageScene, SceneFigure

SIZE = 40
WHOLE = (0.0, 0.0, float(SIZE), float(SIZE))


def spot(row: int, column: int, number: int = 0) -> EncodedImage:
    """A black image with a white square of the size of a part, in a corner a pixel that tells it from others."""
    pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
    side = SIZE * SIDE // CELLS
    pixels[row : row + side, column : column + side] = 255
    pixels[-1, -1] = number
    return EncodedImage.of(pixels)


def by_brightness(images: Sequence[EncodedImage]) -> list[UnitActivation]:
    return [
        UnitActivation(value=1.0, map=(image.pixels[..., 0] / 255).astype(np.float32), box=WHOLE) for image in images
    ]


class BrightnessJudge:
    """Marks what is white in the middle. A label says what it does not know."""

    name = "brightness"

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        return [tuple(self._verdict(image, label) for label in labels) for image in images]

    def _verdict(self, image: EncodedImage, label: str) -> ImageVerdict:
        bright = bool(image.pixels[SIZE // 2, SIZE // 2, 0] > 128)
        return {"white": bright, "black": not bright, "anything": True, "nothing": False, "a word": None}[label]


IMAGES = [spot(number % 24, number * 7 % 24, number) for number in range(60)]
RISING = np.linspace(0, 1, len(IMAGES))


@pytest.mark.parametrize(("label", "expected"), [("white", 1.0), ("black", 0.0), ("anything", 0.5), ("nothing", 0.5)])
def test_a_label_is_right_as_far_as_it_tells_parts_apart(label: str, expected: float):
    """Above the quantile of 80 % are 12 of 60 images, and so 24 parts."""
    assert fuzz([label], IMAGES, RISING, BrightnessJudge(), 99, by_brightness) == {"fuzzed": 24, "fuzzing": expected}


def test_an_alternative_that_is_never_there_costs_nothing_and_one_that_always_is_costs_half():
    assert fuzz(["white", "nothing"], IMAGES, RISING, BrightnessJudge(), 24, by_brightness)["fuzzing"] == 1.0
    assert fuzz(["white", "anything"], IMAGES, RISING, BrightnessJudge(), 24, by_brightness)["fuzzing"] == 0.5


def test_no_more_parts_than_asked_for():
    assert fuzz(["white"], IMAGES, RISING, BrightnessJudge(), 4, by_brightness)["fuzzed"] == 4
    assert fuzz(["white"], IMAGES, RISING, BrightnessJudge(), 1, by_brightness) == {}


def test_unknown_verdicts_give_no_score():
    assert fuzz(["a word"], IMAGES, RISING, BrightnessJudge(), 24, by_brightness) == {"fuzzed": 0}


def test_only_photographs_that_excite_the_unit_are_shown():
    asked: list[str] = []

    def probe(images: Sequence[EncodedImage]) -> list[UnitActivation]:
        asked.extend(image.digest for image in images)
        return by_brightness(images)

    fuzz(["white"], IMAGES, RISING, BrightnessJudge(), 6, probe)
    assert asked == [image.digest for image in IMAGES[:-4:-1]], "the highest first"
    assert fuzz(["white"], IMAGES, np.ones(len(IMAGES)), BrightnessJudge(), 24, probe) == {}, (
        "none is above the quantile"
    )


@pytest.mark.parametrize("image", IMAGES[::6])
def test_parts_are_the_most_exciting_one_and_another_that_hardly_overlaps_it(image: EncodedImage):
    both = parts(image, by_brightness([image])[0])
    assert both is not None
    exciting, other = ((each.pixels > 128).mean() for each in both)
    assert exciting > 0.8
    assert other <= OVERLAP + 0.05
    assert [each.sources for each in both] == [(image.digest,)] * 2
    assert [each.size for each in both] == [(SIZE, SIZE)] * 2


def test_an_exciting_part_in_the_middle_leaves_another():
    centred = spot(12, 12)
    both = parts(centred, by_brightness([centred])[0])
    assert both is not None
    assert (both[1].pixels > 128).mean() <= OVERLAP + 0.05


def test_a_unit_without_maps_or_with_constant_ones_has_no_parts():
    flat = UnitActivation(value=1.0, map=np.ones((4, 4), np.float32), box=WHOLE)
    assert parts(IMAGES[0], flat) is None
    assert parts(IMAGES[0], UnitActivation(value=1.0, map=None, box=WHOLE)) is None
    assert fuzz(["white"], IMAGES, RISING, BrightnessJudge(), 24, lambda images: [flat] * len(images)) == {}


def test_parts_lie_in_what_the_network_saw():
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 255
    image = EncodedImage.of(pixels)
    ends = [(0, 0), (0, CELLS - SIDE), (CELLS - SIDE, CELLS - SIDE)]
    for row, column in ends:
        seen = part(image, (20.0, 0.0, 40.0, 20.0), row, column)
        assert seen.shape == (60, 60, 3), "a square of the network's view stays a square"
        assert (seen == 255).all()
    assert not (part(image, (-5.0, 0.0, 20.0, 20.0), 0, 0) > 128).any(), "a box beyond the image ends with it"


# -- the truth of the sanity tests -----------------------------------------------------------------------------------


def test_the_scene_says_what_a_part_shows():
    scene = CollageScene(figures=(SceneFigure(what="dog"), SceneFigure(what="circle", colour="red")), ground="grass")
    (dog_x, dog_y, length), _ = layout(scene, 224)
    side = 224 * SIDE / CELLS
    assert {"dog"} <= seen_in((dog_x - side / 2, dog_y - side / 2), scene, 224)
    assert "circle" not in seen_in((dog_x - side / 2, dog_y - side / 2), scene, 224)
    corner = seen_in((0.0, 0.0), scene, 224)
    assert "grass" in corner
    assert length < 224
    assert {"circle", "red"} <= seen_in((224 - side, (224 - side) / 2), scene, 224)
