"""Closed-form units on images drawn by hand, colours compared with the standard library's hues, and noisy units."""

import colorsys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy import ndimage

from openmaia.core.images import EncodedImage
from openmaia.core.services import Probe
from openmaia.core.units import Unit
from openmaia.offline.closed_form.colours import hue
from openmaia.offline.closed_form.concepts import INSIDE, OUTSIDE, Sort
from openmaia.offline.closed_form.family import UNITS, UnitMode, units
from openmaia.offline.closed_form.target import ClosedFormTarget
from openmaia.offline.closed_form.view import INPUT_SIDE, STATISTICS_SIDE, DetectorInput
from openmaia.offline.collage import paint
from openmaia.offline.vocabulary.words import BY_NAME
from tests.helpers.images import sample_image
from tests.helpers.looking import look

COLOURS = {"red": (214, 32, 32), "green": (36, 158, 52), "blue": (32, 74, 214), "yellow": (242, 214, 36)}
GREY = (128, 128, 128)


def plain(rgb: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", (INPUT_SIDE, INPUT_SIDE), rgb)


def stripes(horizontal: bool, ink: tuple[int, int, int] = (20, 20, 20)) -> Image.Image:
    image = plain((240, 240, 240))
    draw = ImageDraw.Draw(image)
    for at in range(0, INPUT_SIDE, 24):
        draw.rectangle([0, at, INPUT_SIDE, at + 11] if horizontal else [at, 0, at + 11, INPUT_SIDE], fill=ink)
    return image


def figure(name: str, ink: tuple[int, int, int], side: int = 110) -> Image.Image:
    image = plain(GREY)
    draw = ImageDraw.Draw(image)
    box = [57, 57, 57 + side - 1, 57 + side - 1]
    if name == "circle":
        draw.ellipse(box, fill=ink)
    elif name == "square":
        draw.rectangle(box, fill=ink)
    else:
        draw.polygon([(112, 57), (57 + side, 57 + side), (57, 57 + side)], fill=ink)
    return image


IMAGES = {
    **{name: plain(rgb) for name, rgb in COLOURS.items()},
    "grey": plain(GREY),
    "horizontal stripes": stripes(True),
    "vertical stripes": stripes(False),
    **{
        f"{name} {what}": figure(what, rgb)
        for name, rgb in COLOURS.items()
        for what in ("circle", "square", "triangle")
    },
    "blue horizontal stripes": stripes(True, COLOURS["blue"]),
    "blue vertical stripes": stripes(False, COLOURS["blue"]),
}

EXCITING = {
    ("mono", 0): {"red", "red circle", "red square", "red triangle"},
    ("mono", 1): {"green", "green circle", "green square", "green triangle"},
    ("mono", 2): {
        "blue", "blue circle", "blue square", "blue triangle", "blue horizontal stripes", "blue vertical stripes",
    },
    ("mono", 3): {"horizontal stripes", "blue horizontal stripes"},
    ("mono", 4): {"vertical stripes", "blue vertical stripes"},
    ("mono", 5): {"red circle", "green circle", "blue circle", "yellow circle"},
    ("and", 0): {"red circle"},
    ("and", 1): {"blue horizontal stripes"},
    ("and", 2): {"green square"},
}  # fmt: skip
EXCITING[("or", 0)] = EXCITING[("mono", 0)] | EXCITING[("mono", 3)]
EXCITING[("or", 1)] = {"yellow", "yellow circle", "yellow square", "yellow triangle"} | EXCITING[("mono", 4)]
EXCITING[("or", 2)] = EXCITING[("mono", 1)] | EXCITING[("mono", 5)]


def activation(layer: str, index: int, image: Image.Image) -> float:
    probe = Probe(unit=Unit(target="t", layer=layer, index=index), image=EncodedImage.of(np.asarray(image)))
    return ClosedFormTarget("t").probe([probe])[0].value


def test_there_are_twelve_units_of_three_sorts():
    assert {layer: len(units) for layer, units in UNITS.items()} == {"mono": 6, "or": 3, "and": 3}


@pytest.mark.parametrize(("layer", "index"), sorted(EXCITING))
def test_a_unit_rises_for_its_concept_and_for_nothing_else(layer: str, index: int):
    answers = {name: activation(layer, index, image) for name, image in IMAGES.items()}
    excited = {name for name, value in answers.items() if value > 0.4}
    assert excited == EXCITING[layer, index], answers


@pytest.mark.parametrize(("centre", "width"), [(0, 14), (120, 40), (225, 25)])
def test_a_colours_evidence_is_the_share_of_pixels_of_its_hue(centre: int, width: int):
    small = np.random.default_rng(centre).integers(0, 256, (STATISTICS_SIDE, STATISTICS_SIDE, 3), dtype=np.uint8)
    pixels = small.repeat(2, 0).repeat(2, 1)
    expected = np.zeros((16, 16))
    for row in range(16):
        for column in range(16):
            found, saturation, value = colorsys.rgb_to_hsv(*(pixels[2 * row, 2 * column] / 255))
            near = abs((found * 360 - centre + 180) % 360 - 180) < width
            expected[row, column] = near and saturation >= 0.45 and value >= 0.3
    cells = expected.reshape(2, 8, 2, 8).mean(axis=(1, 3))
    assert np.allclose(hue(centre, width)(DetectorInput(pixels))[:2, :2], cells)


DRAWN = [c.name for c in INSIDE.values() if c.sort in (Sort.TEXTURE, Sort.SHAPE)]


def drawing(name: str) -> DetectorInput:
    random = np.random.default_rng(1)
    if INSIDE[name].sort is Sort.TEXTURE:
        image = paint.pattern(name, paint.PAINTS["red"], paint.PAINTS["white"], INPUT_SIDE, random)
    else:
        image = plain(GREY)
        stamp = paint.shape(name, plain(COLOURS["red"]), 130, random)
        image.paste(stamp, (50, 50), stamp)
    return DetectorInput(np.asarray(image))


@pytest.mark.parametrize("name", DRAWN)
def test_detectors_find_their_own_drawing_only(name: str):
    seen = drawing(name)
    evidence = {other: float(INSIDE[other].detector(seen).max()) for other in DRAWN}
    assert [other for other, value in evidence.items() if value > 0.4] == [name], evidence


def test_side_detector_ignores_the_colour_elsewhere():
    image = plain(GREY)
    image.paste(COLOURS["blue"], (0, 0, INPUT_SIDE, 64))
    assert OUTSIDE["blue only at the top"].detector(DetectorInput(np.asarray(image))).max() > 0.8
    assert OUTSIDE["blue only at the top"].detector(DetectorInput(np.asarray(image.rotate(180)))).max() == 0
    assert OUTSIDE["blue only at the top"].detector(DetectorInput(np.asarray(plain(COLOURS["blue"])))).max() == 0


@pytest.mark.parametrize(("number", "name"), [(2, "two separate figures"), (3, "three or four separate figures")])
def test_count_detectors_count_regions(number: int, name: str):
    image = plain(GREY)
    for at in range(number):
        image.paste(COLOURS["red"], (20 + 60 * at, 80, 60 + 60 * at, 130))
    excited = [other for other in OUTSIDE if OUTSIDE[other].sort is Sort.COUNT]
    assert [o for o in excited if OUTSIDE[o].detector(DetectorInput(np.asarray(image))).max() > 0.5] == [name]


@pytest.mark.parametrize("mode", ["mono", "or", "and"])
def test_noisy_units_are_reproducible_and_differ(mode: UnitMode):
    drawn = units("development", mode, (14, 7))
    assert len({unit.key for unit in drawn}) == 21
    outside = [unit for unit in drawn if not {name for slot in unit.truth for name in slot} <= BY_NAME.keys()]
    assert outside == list(drawn[14:])
    if mode == "or":
        assert drawn[0].key == "or/grid/square/0"


def test_noise_is_small_and_depends_on_the_image():
    unit = replace(UNITS["mono"][0], noise=0.03, gain=4.0, key="red")
    seen = DetectorInput(np.asarray(plain(COLOURS["red"])))
    answers = [float(unit.respond(lambda c: c.detector(seen), f"{n}").max()) / unit.gain for n in range(300)]
    again = float(unit.respond(lambda c: c.detector(seen), "7").max()) / unit.gain
    assert again == answers[7]
    assert 0.05 < np.std(answers) < 0.15
    assert abs(np.mean(answers) - 1) < 0.02


@pytest.mark.parametrize("layer", list(UNITS))
def test_evidence_lies_between_0_and_1(layer: str):
    ((box, responses),) = look(ClosedFormTarget("t"), [np.asarray(sample_image(3, (300, 200)))])
    assert responses[layer].shape == (len(UNITS[layer]), 14, 14)
    assert 0 <= responses[layer].min() <= responses[layer].max() <= 1
    assert box == (0, 0, 300, 200)


def test_map_covers_the_colour():
    image = plain(GREY)
    image.paste(COLOURS["red"], (0, 0, 112, 112))
    probe = Probe(unit=Unit(target="t", layer="mono", index=0), image=EncodedImage.of(np.asarray(image)))
    found = ClosedFormTarget("t").probe([probe])[0].map
    assert found is not None
    assert found[:7, :7].tolist() == np.ones((7, 7)).tolist()
    assert found[7:].max() == 0
    assert found[:, 7:].max() == 0


def test_or_is_a_maximum_and_and_a_minimum():
    for image in IMAGES.values():
        ((_, responses),) = look(ClosedFormTarget("t"), [np.asarray(image)])
        red, horizontal, circle = (responses["mono"][index] for index in (0, 3, 5))
        assert np.array_equal(responses["or"][0], np.maximum(red, horizontal))
        near = [ndimage.maximum_filter(part, 3, mode="nearest") for part in (red, circle)]
        assert np.array_equal(responses["and"][0], np.minimum(*near))
