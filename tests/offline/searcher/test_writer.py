from collections.abc import Sequence

import pytest

from openmaia.core.units import Unit
from openmaia.evaluation.analysis.overlap import explored, fold
from openmaia.evaluation.claims import Claim
from openmaia.offline.scenes.component import SceneVocabulary
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.truth import alternatives, holds
from openmaia.offline.searcher.labels import single
from openmaia.offline.searcher.writer import SceneContrasts, ScenePromptWriter

_WRITER = ScenePromptWriter()


def _claim(*labels: str) -> Claim:
    return Claim(unit=Unit(target="target", layer="layer", index=0), labels=labels)


def _shows(prompt: str, seed: int, label: str) -> bool:
    return holds(settle(read(prompt, seed)[0]), label) is True


@pytest.mark.parametrize(
    "label",
    [
        *list(single())[::7],
        "a red boat",
        "boat on the sea",
        "two cats",
        "a cat on a table",
        "boat without night",
        "beach without animal",
        "tree without star",
        "dog and boat",
    ],
)
def test_positive_scenes_show_the_label_and_their_twins_do_not(label: str):
    prompts = _WRITER.write(_claim(label), 6, 0)
    positive, neutral = prompts[:6], prompts[6:]
    assert all(_shows(each.prompt, each.seed, label) for each in positive)
    assert not any(_shows(each.prompt, each.seed, label) for each in neutral)
    assert [each.seed for each in positive] == [each.seed for each in neutral]


def test_twins_of_an_exception_lack_the_label_or_show_the_exception():
    prompts = _WRITER.write(_claim("boat without night"), 20, 0)
    boats = [_shows(each.prompt, each.seed, "boat") for each in prompts[20:]]
    nights = [_shows(each.prompt, each.seed, "night") for each in prompts[20:]]
    assert all(boat is night for boat, night in zip(boats, nights, strict=True))
    assert 4 < sum(boats) < 16


@pytest.mark.parametrize(
    "label", ["a boat or a balloon", "either dusk or a red boat", "Either dusk or a red boat", "a cat, a dog or snow"]
)
def test_each_part_of_a_label_has_the_same_share_of_the_prompts(label: str):
    parts = alternatives(label)
    prompts = _WRITER.write(_claim(label), 6 * len(parts), 0)
    positive, neutral = prompts[: 6 * len(parts)], prompts[6 * len(parts) :]
    shown = [[part for part in parts if _shows(each.prompt, each.seed, part)] for each in positive]
    assert shown == [[part] for part in parts] * 6
    assert not any(_shows(each.prompt, each.seed, label) for each in neutral)
    assert {each.label for each in prompts} == {label}
    found = SceneContrasts().find([label], [], 6)
    assert [_shows(found[n].prompt, 0, parts[n % len(parts)]) for n in range(6)] == [True] * 6


def test_parts_of_a_label_share_an_odd_number_of_prompts_over_two_looks():
    claim = _claim("a boat or a balloon")
    first = _WRITER.write(claim, 5, 0)
    more = _WRITER.write(claim, 5, 0, written=first)
    shown = [_shows(each.prompt, each.seed, "boat") for each in (*first[:5], *more[:5])]
    assert shown.count(True) == 5


def test_parts_of_a_label_keep_its_exception():
    prompts = _WRITER.write(_claim("a boat or a dog without night"), 20, 0)
    assert all(_shows(each.prompt, each.seed, "a boat or a dog without night") for each in prompts[:20])
    nights = [each for each in prompts[20:] if _shows(each.prompt, each.seed, "night")]
    assert {label for each in nights for label in ("boat", "dog") if _shows(each.prompt, each.seed, label)} == {
        "boat",
        "dog",
    }


def test_twin_differs_in_one_word():
    prompts = _WRITER.write(_claim("red"), 12, 0)
    for positive, neutral in zip(prompts[:12], prompts[12:], strict=True):
        one, other = positive.prompt.split(), neutral.prompt.split()
        assert sum(a != b for a, b in zip(one, other, strict=True)) <= 2  # the colour, and its article


def test_scenes_of_a_label_show_no_other_label():
    prompts = _WRITER.write(_claim("dog", "night"), 12, 0)
    assert not any(_shows(each.prompt, each.seed, "dog") for each in prompts if each.label == "night")


def test_prompts_depend_on_the_seed_alone_and_are_new_at_further_looks():
    claim = _claim("boat")
    first = _WRITER.write(claim, 10, 0)
    assert first == _WRITER.write(claim, 10, 0)
    assert first != _WRITER.write(claim, 10, 1)
    more = _WRITER.write(claim, 10, 0, written=first)
    assert {each.prompt for each in first}.isdisjoint(each.prompt for each in more)


def test_prompts_of_the_agent_are_not_used():
    claim = _claim("boat")
    drawn = explored(each.prompt for each in _WRITER.write(claim, 10, 0))
    assert drawn.isdisjoint(fold(each.prompt) for each in _WRITER.write(claim, 10, 0, drawn))


def test_label_with_an_unknown_word_is_quoted_as_a_whole():
    prompts = _WRITER.write(_claim("a happy boat"), 4, 0)
    assert all("a happy boat" in each.prompt for each in prompts[:4])
    assert not any("happy" in each.prompt for each in prompts[4:])


@pytest.mark.parametrize(
    ("label", "related"),
    [
        ("animal", {0}),
        ("a dog", {0}),
        ("a red dog", set[int]()),
        ("beach", {1}),
        ("a happy boat", {1}),
        ("red", {1}),
        ("cat or boat", {1}),
        ("cat or red dog", set[int]()),
    ],
)
def test_related_prompts_show_the_label(label: str, related: set[int]):
    assert _WRITER.related(_claim(label), ["a black dog in a street", "a red boat on the beach"]) == related


@pytest.mark.parametrize(
    ("one", "other", "is_like"),
    [
        ("a red boat", "boats", True),
        ("a red boat", "a red cup", True),
        ("dog", "animal", True),
        ("dog", "cat", False),
        ("sailing boat", "a ship", True),
        ("on the sea", "the ocean", True),
        ("sea at night", "beach", False),
        ("stripes", "vertically striped cup", True),
        ("a boat or a cup", "dog or cup", True),
        ("a boat or a cup", "a dog or a cat", False),
    ],
)
def test_claims_are_alike_if_they_share_a_word_or_a_wider_one(one: str, other: str, is_like: bool):
    assert _claim(one).is_like(_claim(other), "scene_rules") is is_like


@pytest.mark.parametrize("labels", [("boat",), ("boat", "at night"), ("a happy boat",)])
def test_contrasts_take_turns(labels: Sequence[str]):
    found = SceneContrasts().find(labels, [], 4)
    assert [each.label for each in found] == [*labels, *labels, *labels, *labels][:4]
    assert all(each.prompt != each.contrast_prompt for each in found)


@pytest.mark.parametrize("without", [["dog", "horse", "white", "dusk"], ["sea", "storm", "stripes", "boat"]])
def test_rules_write_nothing_that_the_generator_does_not_know(without: list[str]):
    writer = ScenePromptWriter(without)
    written = [each.prompt for label in ("animal", "yellow", "forest") for each in writer.write(_claim(label), 10, 0)]
    contrasts = [each.contrast_prompt for each in SceneContrasts(without).find(["animal", "yellow", "forest"], [], 30)]
    texts = [*written, *contrasts, *writer.unrelated(50, 0), *writer.words]
    assert [each for each in texts if SceneVocabulary(without).missing(each)] == []
