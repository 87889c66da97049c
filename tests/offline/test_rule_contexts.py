"""Prompt pairs for claimed contexts by rules."""

import pytest

from openmaia.offline.collage.scene import read
from openmaia.offline.vocabulary.contexts import RuleContextWriter, is_exact_name

WRITER = RuleContextWriter()


def written(name: str, context: str, n: int = 12) -> list[tuple[str, str]]:
    return WRITER.write(name, context, n, 0)


@pytest.mark.parametrize(
    ("context", "part"),
    [
        ("snow as the ground", " on snow"),
        ("red background", " on a red background"),
        ("a ball beside it", " next to a ball on "),
        ("a red ball", " next to a red ball on "),
        ("large object", "a large cow"),
        ("object at the left", "a cow at the left"),
    ],
)
def test_context_is_in_one_prompt_only(context: str, part: str):
    for having, without in written("cow", context):
        assert part in having
        assert part not in without


@pytest.mark.parametrize(
    "context", ["snow", "a ball beside it", "a red ball on grass", "small", "red background with a ball"]
)
def test_prompts_of_a_pair_have_equally_many_figures(context: str):
    for pair in written("cow", context):
        scenes = [read(prompt, 0, lambda word: False)[0] for prompt in pair]
        assert [scene.figures[0].what for scene in scenes] == ["cow", "cow"]
        assert len({len(scene.figures) for scene in scenes}) == 1


def test_ground_varies_between_pairs_only():
    grounds = [[prompt.rsplit(" on ", 1)[1] for prompt in pair] for pair in written("cow", "a ball")]
    assert all(having == without for having, without in grounds)
    assert len({having for having, _ in grounds}) > 3


def test_two_contexts_are_both_replaced():
    having, without = written("cow", "red background with a ball")[0]
    assert "ball" in having and "red" in having
    assert "ball" not in without and "red" not in without


def test_absent_class_is_not_named():
    for having, without in WRITER.write("cow", "snow", 8, 0, absent=True):
        assert "cow" not in having + without


def test_unknown_context_is_left_to_the_generator():
    having, without = written("tench", "held by a fisherman")[0]
    assert having == "a tench, held by a fisherman"
    assert "fisherman" not in without and "tench" in without


@pytest.mark.parametrize(
    ("name", "exact"), [("cow", True), ("strawberry", True), ("bull", False), ("hoofed animal", True)]
)
def test_more_general_word_is_no_exact_name(name: str, exact: bool):
    assert is_exact_name(name) is exact
