"""From the words of a claim to matched prompts."""

import pytest

from openmaia.apps.bias.contexts import Context, ModelWriter, RuleWriter
from openmaia.evaluate.asking import Asker
from openmaia.generators.collage.scene import read
from tests.evaluate.talking import in_turn

WRITER = RuleWriter()


@pytest.mark.parametrize(
    ("label", "sign", "text"),
    [
        ("+ snow", 1, "snow"),
        ("- a ball beside it", -1, "a ball beside it"),
        ("− dark rooms.", -1, "dark rooms"),
        ("**+ red background**", 1, "red background"),
        ("indoors", 0, "indoors"),
    ],
)
def test_a_label_has_a_sign_and_a_context(label: str, sign: int, text: str):
    assert Context.of(label) == Context(label=label, sign=sign, text=text)


def written(name: str, label: str, n: int = 12):
    return WRITER.write(name, Context.of(label), n, 0)


@pytest.mark.parametrize(
    ("label", "part"),
    [
        ("+ snow as the ground", " on snow"),
        ("- red background", " on a red background"),
        ("+ a ball beside it", " next to a ball on "),
        ("+ a red ball", " next to a red ball on "),
        ("+ large object", "a large pig"),
        ("- object at the left", "a pig at the left"),
    ],
)
def test_only_one_of_a_pair_has_the_context(label: str, part: str):
    for one in written("pig", label):
        assert part in one.with_context
        assert part not in one.without


@pytest.mark.parametrize(
    "label", ["+ snow", "+ a ball beside it", "- a red ball on grass", "+ small", "+ red background with a ball"]
)
def test_the_two_of_a_pair_have_the_class_and_equally_many_figures(label: str):
    for one in written("pig", label):
        scenes = [read(prompt, one.seed, lambda word: False)[0] for prompt in (one.with_context, one.without)]
        assert [scene.figures[0].what for scene in scenes] == ["pig", "pig"]
        assert len({len(scene.figures) for scene in scenes}) == 1


def test_what_the_claim_says_nothing_about_is_the_same_in_both_and_changes_between_pairs():
    grounds = [
        (one.with_context.rsplit(" on ", 1)[1], one.without.rsplit(" on ", 1)[1]) for one in written("pig", "+ a ball")
    ]
    assert all(having == without for having, without in grounds)
    assert len(set(grounds)) > 3


def test_two_contexts_are_both_exchanged():
    one = written("pig", "+ red background with a ball")[0]
    assert "ball" in one.with_context and "red" in one.with_context
    assert "ball" not in one.without and "red" not in one.without


def test_pairs_have_seeds_of_their_own():
    seeds = [one.seed for one in written("pig", "+ snow", 40)]
    assert len(set(seeds)) == 40


def test_pictures_without_the_class_do_not_name_it():
    for one in WRITER.write("pig", Context.of("+ snow"), 8, 0, absent=True):
        assert "pig" not in one.with_context + one.without


def test_a_context_in_other_words_is_left_to_the_generator():
    one = written("tench", "+ held by a fisherman")[0]
    assert one.with_context == "a tench, held by a fisherman"
    assert "fisherman" not in one.without and "tench" in one.without


def test_a_language_model_writes_pairs_that_are_repeated_with_new_seeds():
    lines = "\n".join(f"{n}. a pig on snow, scene {n} | a pig on mud, scene {n}" for n in range(1, 21))
    found = ModelWriter(Asker(in_turn(lines), "a model")).write("pig", Context.of("+ snow"), 30, 0)
    assert len(found) == 30
    assert found[20].with_context == found[0].with_context
    assert len({one.seed for one in found}) == 30
