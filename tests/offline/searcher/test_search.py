"""The search on units that respond to a known label. They see what is drawn and not the prompt."""

from collections.abc import Callable
from random import Random

import pytest

from openmaia.agent.tools.api_text import api_text
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.offline.scenes.component import SceneVocabulary
from openmaia.offline.scenes.edits import edit
from openmaia.offline.scenes.grammar import read, tokens
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.truth import holds
from openmaia.offline.searcher.host import Searcher

LATER = [pytest.mark.slow, pytest.mark.nightly]
_SENTENCES = {
    "red boat": ("a red boat on the sea by day", "two red boats and a white bird on the sea at dusk"),
    "sea": ("a white boat on the sea by day", "a duck on the sea at night"),
    "animal": ("a brown dog in a meadow by day", "a cat in a room by day", "a fish under water by day"),
    "yellow": ("a yellow cup in a room by day", "a yellow bus in a street by day"),
    "ball": ("a red ball on the beach by day", "a white ball and a dog in a meadow at night"),
    "dotted background": (
        "a boat and two white cups on a red and blue dotted background",
        "a green house and a cat on a black and white dotted background",
    ),
    "striped background": (
        "a boat and two white cups on a red and blue horizontally striped background",
        "a green house and a cat on a black and white vertically striped background",
        "a dog and a bus on a yellow and green diagonally striped background",
    ),
    "two boats": ("two white boats on the sea by day", "two red boats and a white bird on the sea at dusk"),
    "boat and dog": (
        "a white boat and a brown dog on the beach by day",
        "a red dog and a blue boat in a street by day",
    ),
    "cup; night": ("a white cup in a room by day", "a red boat on the sea at night", "a tree in a meadow at night"),
    "boat without night": ("a white boat on the sea by day", "a red boat and a white bird on the sea at dusk"),
    "beach without animal": ("a white boat on the beach by day", "a red cup on the beach at dusk"),
}
_OTHERS = ("a green house in the snow by day", "a cup in a room by day", "a castle in a forest at night")


def _activation(scene: Scene, label: str) -> float:
    # Of a unit that responds to a label, or to one of several.
    is_shown = any(holds(scene, each) for each in label.split("; "))
    return 2.0 * is_shown + 0.1 * (scene.place == "forest")


def _partly(scene: Scene, label: str) -> float:
    # Of a unit that other scenes excite as well, for no reason that has words.
    return max(_activation(scene, label), 2.0 * (Random(scene.dumps()).random() < 0.15))


def _listed(name: str, code: str) -> list[str]:
    body = code.partition(f"{name} = [")[2].partition("\n]")[0]
    return [line.strip().rstrip(",")[1:-1] for line in body.strip().splitlines()]


def _run(code: str, measure: Callable[[Scene], float]) -> str:
    # What the code of an experiment prints, for the parts of it that vary.
    lists = {name: _listed(name, code) for name in ("prompts", "orders")}
    scenes = [settle(read(text, 7)[0]) for text in lists["prompts"]]
    if "edit_images" in code:
        pairs = zip(scenes, lists["orders"], strict=True)
        values = [measure(each) for before, order in pairs for each in (before, edit(before, order)[0])]
        return f"edit: {' '.join(f'{value:.5g}' for value in values)}"
    stage = next(
        each
        for each in ("screen", "single", "crowd", "around", "pair", "check", "recheck", "except")
        if f'show("{each}"' in code
    )
    values = [measure(each) for each in scenes]
    return f"{stage}: {' '.join(f'{value:.5g}' for value in values)}\nhighest: {max(values):.5g} for a prompt"


def _investigate(
    searcher: Searcher, label: str, exemplars: str, activation: Callable[[Scene, str], float] = _activation
) -> str:
    messages: list[Message] = [system(api_text({})), user("Find out what excites the unit.")]
    for _ in range(12):
        text = searcher.reply([Chat(conversation="", messages=messages, seed=0, max_tokens=100)])[0].text
        if "[DESCRIPTION]" in text:
            return text
        shown = exemplars if "dataset_exemplars" in text else _run(text, lambda scene: activation(scene, label))
        messages += [assistant(text), user(shown)]
    raise AssertionError("no answer after twelve replies")


def _exemplars(label: str) -> str:
    top = [sentence for _ in range(3) for sentence in _SENTENCES[label]]
    lines = [f"top exemplar: 2.1\n[image-1, masked] {each}; where the unit responds: a cup." for each in top]
    return "\n".join([*lines, *(f"random exemplar: 0.1\n[image-2, original] {each}." for each in _OTHERS)])


@pytest.mark.parametrize("label", [*_SENTENCES])
def test_search_finds_what_excites_a_unit(label: str):
    answer = _investigate(Searcher("full"), label, _exemplars(label))
    found = {line.partition("]: ")[2] for line in answer.splitlines() if line.startswith("[LABEL")}
    assert found == {*label.split("; ")}


@pytest.mark.parametrize("weak", [0.4, 0.6])
def test_search_finds_a_weak_alternative_that_exemplars_do_not_show(weak: float):
    def activation(scene: Scene, label: str) -> float:
        return max(holds(scene, "night") is True, weak * (holds(scene, label) is True))

    night = [f"top exemplar: 1\n[image-1, masked] {each}." for each in ("a red boat on the sea at night",) * 5]
    told = "\n".join([*night, *(f"random exemplar: 0\n[image-2, original] {each}." for each in _OTHERS)])
    answer = _investigate(Searcher("full"), "cup", told, activation)
    assert answer.splitlines()[1:] == ["[LABEL 1]: night", "[LABEL 2]: cup"]


@pytest.mark.parametrize("label", ["boat and dog", "two boats", pytest.param("pink castle", marks=LATER)])
def test_search_finds_in_crowds_what_no_exemplar_shows(label: str):
    told = "\n".join(
        f"{kind} exemplar: 0.1\n[image-1, masked] {each}." for kind in ("top", "random") for each in _OTHERS
    )
    answer = _investigate(Searcher("full"), label, told)
    assert answer.endswith(f"[LABEL 1]: {label}")


def test_search_names_a_pattern_without_a_background_if_objects_excite_too():
    told = [f"top exemplar: 2.1\n[image-1, masked] {each}." for each in _SENTENCES["dotted background"] * 3]
    told += ["top exemplar: 2.1\n[image-1, masked] a red and white dotted boat on the sea by day."]
    told += [f"random exemplar: 0.1\n[image-2, original] {each}." for each in _OTHERS]
    assert _investigate(Searcher("full"), "dots", "\n".join(told)).endswith("[LABEL 1]: dots")


@pytest.mark.parametrize(("few", "answer"), [(2, "[LABEL 1]: circle"), (6, "[DESCRIPTION]: NONE")])
def test_search_names_a_kind_that_a_viewer_overlooks_in_few_exemplars(few: int, answer: str):
    top = [
        f"top exemplar: 2.1\n[image-1, masked] a white boat and a {kind} in a room." for kind in ("dog", "cup", "bus")
    ]
    told = [*(top * few)[:few], *(f"random exemplar: 0.1\n[image-2, original] {each}." for each in _OTHERS)]
    assert _investigate(Searcher("full"), "circle", "\n".join(told), _partly).endswith(answer)


def test_search_abstains_where_a_label_explains_a_part_and_the_exemplars_show_something_else():
    assert _investigate(Searcher("full"), "sea", _exemplars("yellow"), _partly) == "[DESCRIPTION]: NONE"


def test_search_names_what_explains_all_images_though_no_exemplar_shows_it():
    assert _investigate(Searcher("full"), "sea", _exemplars("yellow")).endswith("[LABEL 1]: sea")


def test_plain_search_answers_without_exemplars():
    assert _investigate(Searcher("plain"), "sea", "").endswith("[LABEL 1]: sea")


@pytest.mark.parametrize("without", [["boat", "red"], ["dusk", "storm", "sea"], ["dog", "polka dots", "outlined"]])
@pytest.mark.parametrize("label", ["red boat", *(pytest.param(each, marks=LATER) for each in ("sea", "animal"))])
def test_search_asks_for_nothing_that_the_generator_does_not_know(without: list[str], label: str):
    asked: list[str] = []
    orders: list[str] = []

    def measure(scene: Scene) -> float:
        return _activation(scene, label)

    messages: list[Message] = [system(api_text({})), user("Find out what excites the unit.")]
    searcher, text = Searcher("full", without), ""
    for _ in range(12):
        text = searcher.reply([Chat(conversation="", messages=messages, seed=0, max_tokens=100)])[0].text
        if "[DESCRIPTION]" in text:
            break
        asked += _listed("prompts", text)
        orders += _listed("orders", text)
        messages += [assistant(text), user(_exemplars(label) if "dataset_exemplars" in text else _run(text, measure))]
    assert len(asked) > 400
    assert [each for each in asked if SceneVocabulary(without).missing(each)] == []
    assert [each for each in orders if {token.name for token in tokens(each)[0]} & {*without}] == []
    assert all(not SceneVocabulary(without).missing(each) for each in text.partition("[LABEL 1]: ")[2].splitlines())


def test_search_refuses_a_viewer_whose_words_it_does_not_read():
    given = ["name=x", "units=all", "target.name=t", "backbone.kind=searcher"]
    assert load(given).viewer.kind == "scenes"
    assert load([*given, "viewer.kind=scripted", "backbone.search=plain"]).viewer.kind == "scripted"
    with pytest.raises(
        UsageError, match="viewer.kind=none: backbone.search=full reads exemplars in the words of viewer.kind=scenes"
    ):
        load([*given, "viewer.kind=none"])
