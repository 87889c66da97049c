"""Units computed by formulas: against pictures drawn by hand, and colours against the standard library's hues."""

import colorsys

import numpy as np
import pytest
from PIL import Image, ImageDraw

from openmaia.images import Picture
from openmaia.services import Probe
from openmaia.targets.closed_form import LAYERS, SIZE, ClosedFormTarget, colour
from openmaia.units import Unit
from tests.pictures.making import picture

COLOURS = {"red": (214, 32, 32), "green": (36, 158, 52), "blue": (32, 74, 214), "yellow": (242, 214, 36)}
GREY = (128, 128, 128)


def plain(rgb: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", (SIZE, SIZE), rgb)


def stripes(horizontal: bool, ink: tuple[int, int, int] = (20, 20, 20)) -> Image.Image:
    image = plain((240, 240, 240))
    draw = ImageDraw.Draw(image)
    for at in range(0, SIZE, 24):
        draw.rectangle([0, at, SIZE, at + 11] if horizontal else [at, 0, at + 11, SIZE], fill=ink)
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


PICTURES = {
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
    probe = Probe(unit=Unit(target="t", layer=layer, index=index), picture=Picture.of(np.asarray(image)))
    return ClosedFormTarget("t").probe([probe])[0].value


def test_there_are_twelve_units_of_three_sorts():
    assert {layer: len(units) for layer, units in LAYERS.items()} == {"mono": 6, "or": 3, "and": 3}


@pytest.mark.parametrize(("layer", "index"), sorted(EXCITING))
def test_a_unit_rises_for_its_concept_and_for_nothing_else(layer: str, index: int):
    answers = {name: activation(layer, index, image) for name, image in PICTURES.items()}
    excited = {name for name, value in answers.items() if value > 0.4}
    assert excited == EXCITING[layer, index], answers


@pytest.mark.parametrize(("hue", "name"), [(0, "red"), (120, "green"), (225, "blue"), (55, "yellow")])
def test_a_colours_evidence_is_the_share_of_pixels_of_its_hue(hue: int, name: str):
    rgb = np.random.default_rng(hue).integers(0, 256, (SIZE, SIZE, 3)) / 255
    expected = np.zeros((SIZE, SIZE))
    for row in range(32):
        for column in range(32):
            red, green, blue = rgb[row, column]
            angle = colorsys.rgb_to_hsv(red, green, blue)[0] * 360
            high, low = max(red, green, blue), min(red, green, blue)
            near = abs((angle - hue + 180) % 360 - 180) < 25
            expected[row, column] = near and high - low > 0.35 * high and high > 0.25
    cells = expected[:32, :32].reshape(2, 16, 2, 16).mean(axis=(1, 3))
    assert np.allclose(colour(hue)(rgb)[:2, :2], cells), name


@pytest.mark.parametrize("layer", list(LAYERS))
def test_evidence_lies_between_0_and_1_where_the_concept_is(layer: str):
    ((view, responses),) = ClosedFormTarget("t").look([np.asarray(picture(3, (300, 200)))])
    assert responses[layer].shape == (len(LAYERS[layer]), 14, 14)
    assert 0 <= responses[layer].min() <= responses[layer].max() <= 1
    assert view.shape == (224, 224, 3)


def test_the_map_lies_where_the_colour_lies():
    image = plain(GREY)
    image.paste(COLOURS["red"], (0, 0, 112, 112))
    probe = Probe(unit=Unit(target="t", layer="mono", index=0), picture=Picture.of(np.asarray(image)))
    found = ClosedFormTarget("t").probe([probe])[0].map
    assert found is not None
    assert found[:7, :7].tolist() == np.ones((7, 7)).tolist()
    assert found[7:].max() == 0
    assert found[:, 7:].max() == 0


def test_and_and_or_are_minimum_and_maximum_of_maps():
    for image in PICTURES.values():
        ((_, responses),) = ClosedFormTarget("t").look([np.asarray(image)])
        red, horizontal, circle = (responses["mono"][index] for index in (0, 3, 5))
        assert np.array_equal(responses["or"][0], np.maximum(red, horizontal))
        assert np.array_equal(responses["and"][0], np.minimum(red, circle))


def test_shuffled_answers_do_not_depend_on_what_is_seen():
    unit = Unit(target="t", layer="mono", index=0)
    pictures = [Picture.of(np.asarray(plain((200 + n, 10, 10)))) for n in range(40)]
    answers = ClosedFormTarget("t", shuffled=True).probe([Probe(unit=unit, picture=p) for p in pictures])
    straight = ClosedFormTarget("t").probe([Probe(unit=unit, picture=p) for p in pictures])
    assert all(answer.value == 1 for answer in straight)
    assert sum(answer.value > 0.4 for answer in answers) < 20


def test_shuffled_answers_are_the_same_every_time():
    unit = Unit(target="t", layer="mono", index=1)
    probes = [Probe(unit=unit, picture=Picture.of(np.asarray(picture(seed)))) for seed in range(5)]
    one, other = (ClosedFormTarget("t", shuffled=True).probe(probes) for _ in range(2))
    assert [answer.value for answer in one] == [answer.value for answer in other]
