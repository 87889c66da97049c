"""Prompt pairs for claimed contexts by rules."""

import pytest

from openmaia.offline.collage.scene import read
from openmaia.offline.vocabulary.contexts import RuleContextWriter, is_exact_name
from openmaia.recipes.bias.contexts import ClaimedContext, ContextPrompts

WRITER = RuleContextWriter()


def written(name: str, label: str, n: int = 12) -> list[ContextPrompts]:
    return WRITER.write(name, ClaimedContext.parse(label), n, 0)


@pytest.mark.parametrize(
    ("label", "part"),
    [
        ("+ snow as the ground", " on snow"),
        ("- red background", " on a red background"),
        ("+ a ball beside it", " next to a ball on "),
        ("+ a red ball", " next to a red ball on "),
        ("+ large object", "a large cow"),
        ("- object at the left", "a cow at the left"),
    ],
)
def test_context_is_in_one_prompt_only(label: str, part: str):
    for pair in written("cow", label):
        assert part in pair.with_context
        assert part not in pair.without


@pytest.mark.parametrize(
    "label", ["+ snow", "+ a ball beside it", "- a red ball on grass", "+ small", "+ red background with a ball"]
)
def test_prompts_of_a_pair_have_equally_many_figures(label: str):
    for pair in written("cow", label):
        scenes = [read(prompt, pair.seed, lambda word: False)[0] for prompt in (pair.with_context, pair.without)]
        assert [scene.figures[0].what for scene in scenes] == ["cow", "cow"]
        assert len({len(scene.figures) for scene in scenes}) == 1


def test_ground_varies_between_pairs_only():
    grounds = [
        (pair.with_context.rsplit(" on ", 1)[1], pair.without.rsplit(" on ", 1)[1])
        for pair in written("cow", "+ a ball")
    ]
    assert all(having == without for having, without in grounds)
    assert len(set(grounds)) > 3


def test_two_contexts_are_both_replaced():
    pair = written("cow", "+ red background with a ball")[0]
    assert "ball" in pair.with_context and "red" in pair.with_context
    assert "ball" not in pair.without and "red" not in pair.without


def test_pairs_have_different_seeds():
    seeds = [pair.seed for pair in written("cow", "+ snow", 40)]
    assert len(set(seeds)) == 40


def test_absent_class_is_not_named():
    for pair in WRITER.write("cow", ClaimedContext.parse("+ snow"), 8, 0, absent=True):
        assert "cow" not in pair.with_context + pair.without


def test_unknown_context_is_left_to_the_generator():
    pair = written("tench", "+ held by a fisherman")[0]
    assert pair.with_context == "a tench, held by a fisherman"
    assert "fisherman" not in pair.without and "tench" in pair.without


@pytest.mark.parametrize(
    ("name", "exact"), [("cow", True), ("strawberry", True), ("bull", False), ("hoofed animal", True)]
)
def test_more_general_word_is_no_exact_name(name: str, exact: bool):
    assert is_exact_name(name) is exact
