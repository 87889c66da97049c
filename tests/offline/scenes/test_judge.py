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


def test_edited_image_shows_its_new_scene(judge: Judge):
    before = draw(Generation(prompt="a red boat on the sea by day", seed=1), 64).image
    after = redraw(Edit(image=before, instruction="at night", seed=1)).image
    assert judge.judge([before, after], ("at night",)) == [(False,), (True,)]
