"""The judge `scenes` knows drawn images by their recipes, and no other ones."""

from dataclasses import replace

import pytest

from openmaia.assembly.evaluation import component_judge
from openmaia.config.loading import load
from openmaia.core.services import Edit, Generation
from openmaia.evaluation.judging.judges import Judge
from openmaia.offline.scenes.drawing import draw, redraw
from tests.conftest import REPOSITORY

PROMPT = "two red boats on the sea at night"


@pytest.fixture(scope="module")
def judge() -> Judge:
    built = component_judge(load([str(REPOSITORY / "configs/closed-form.yaml"), "evaluate.judge.kind=scenes"]))
    assert built is not None
    return built


def test_scene_of_an_image_is_judged_and_not_its_pixels(judge: Judge):
    image = draw(Generation(prompt=PROMPT, seed=1), 64).image
    labels = ("boats", "two red boats", "three boats", "vehicle", "at night", "a cat", "zyzzyva", "")
    assert judge.judge([image, replace(image, recipe="")], labels) == [
        (True, True, False, True, True, False, None, None),
        (None,) * 8,
    ]
    assert judge.judge([image.packed()], ("boat",)) == [(True,)]


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("boat without dog", True),
        ("boat without night", False),
        ("boats, but no cats or dogs", True),
        ("no boats", False),
        ("no cats", True),
        ("boat without zyzzyva", None),
        ("cat without zyzzyva", False),
        ("cat or boat", True),
        ("a cat, a dog or a house", False),
        ("a cat, a boat, or a house", True),
        ("at night, a boat or a car", True),
        ("by day, a boat or a car", False),
        ("cat or zyzzyva", None),
        ("boat or zyzzyva", True),
        ("cat or boat without night", False),
        ("a blue or red boat", None),
        ("a boat at night or dusk", None),
        ("night or dusk", True),
        ("without", None),
        ("boat" + " or cat" * 1000, None),
    ],
)
def test_exceptions_and_alternatives_are_judged(judge: Judge, label: str, shown: bool | None):
    image = draw(Generation(prompt=PROMPT, seed=1), 64).image
    assert judge.judge([image], (label,)) == [(shown,)]


def test_edited_image_shows_its_new_scene(judge: Judge):
    before = draw(Generation(prompt="a red boat on the sea by day", seed=1), 64).image
    after = redraw(Edit(image=before, instruction="at night", seed=1)).image
    assert judge.judge([before, after], ("at night",)) == [(False,), (True,)]


@pytest.mark.parametrize("label", ["a boat without birds", "a boat without a bird", "no birds"])
def test_denied_plural_is_false_where_one_is_shown(judge: Judge, label: str):
    image = draw(Generation(prompt="a red boat and a white bird on the sea", seed=1), 64).image
    assert judge.judge([image], (label, "a bird", "birds")) == [(False, True, False)]
