"""Contrasts that a language model writes: what is read, what is refused, and when it is asked again."""

from pathlib import Path

import pytest

from openmaia.agent.contrasts import WrittenContrasts, parse_contrasts
from openmaia.agent.tasks.task import load
from openmaia.models.backbones.replay import ReplayBackbone
from tests.helpers.investigating import history

DOG = "a dog on grass | a cat on grass | a cat"


@pytest.mark.parametrize(
    "number", ["1", "[1]", "1.", "- 1", "**1**", "Label 1", "[LABEL 1]:", "3. 1", "dog", "1. dogs"]
)
def test_label_is_named_in_many_ways(number: str):
    (contrast,) = parse_contrasts(f"{number} | {DOG}", ["dog"])
    assert (contrast.label, contrast.prompt, contrast.contrast_prompt, contrast.shows) == (
        "dog", "a dog on grass", "a cat on grass", "a cat"
    )  # fmt: skip


@pytest.mark.parametrize(
    "line", [f"| 1 | {DOG} |", '1 | "a dog on grass" | *a cat on grass* | `a cat`', f"  > 1|{DOG}"]
)
def test_decoration_is_removed(line: str):
    (contrast,) = parse_contrasts(f"Here they are:\n```\n{line}\n```", ["dog"])
    assert (contrast.prompt, contrast.contrast_prompt, contrast.shows) == tuple(DOG.split(" | "))


def test_contrast_without_a_name_shows_its_prompt():
    (contrast,) = parse_contrasts("1 | a dog on grass | a cat on grass", ["dog"])
    assert contrast.shows == "a cat on grass"


@pytest.mark.parametrize(
    "line",
    [
        "", "1", "1 | a dog", f"2 | {DOG}", f"0 | {DOG}", f"cat | {DOG}", f"1 | {DOG} | more", "|---|---|---|---|",
        "1 | a dog on grass | a dog on grass | a dog", "1 | a dog on grass | two dogs on grass | dogs",
        "number of the label | first prompt | second prompt | what the second image shows instead of the label",
        f"1 | {'x' * 3000} | a cat | a cat", "1 | a dog | ... | a cat",
    ],
)  # fmt: skip
def test_unusable_line_is_ignored(line: str):
    assert parse_contrasts(line, ["dog"]) == []


def test_contrast_shows_no_other_label():
    assert parse_contrasts("1 | a red dog | a red cat | cat", ["dog", "red"]) == []
    assert len(parse_contrasts("1 | a red dog | a red cat | cat", ["dog", "-"])) == 1
    assert parse_contrasts(f"{'1' * 5000} | a red dog | a red cat | cat", ["dog"]) == []


@pytest.fixture
def find(tmp_path: Path):
    """Finds contrasts for the labels dog and cup; the model gives these replies."""

    def go(*replies: str, n: int = 4) -> list[tuple[str, str]]:
        contrasts = WrittenContrasts(
            backbone=ReplayBackbone(str(history(tmp_path, replies))),
            instructions=load("description").contrasts,
            run_seed=0,
            reply_tokens=100,
        )
        return [(one.label, one.shows) for one in contrasts.find(["dog", "cup"], ["wolves"], n)]

    return go


def lines(label: int, *shown: str) -> str:
    return "\n".join(f"{label} | scene {n} with it | scene {n} with {thing} | {thing}" for n, thing in enumerate(shown))


def test_labels_take_turns(find):
    reply = lines(1, "a cat", "a fox", "a pig") + "\n" + lines(2, "a jug", "a can", "a pot")
    assert find(reply) == [("dog", "a cat"), ("cup", "a jug"), ("dog", "a fox"), ("cup", "a can")]
    assert find(reply, n=3) == [("dog", "a cat"), ("cup", "a jug"), ("dog", "a fox")]


def test_model_is_asked_again_for_what_is_missing(find):
    first, second = lines(1, "a cat", "a fox", "a pig"), lines(1, "a hen") + "\n" + lines(2, "a jug", "a can")
    assert find(first, second) == [("dog", "a cat"), ("cup", "a jug"), ("dog", "a fox"), ("cup", "a can")]


def test_duplicates_are_left_out(find):
    doubled = lines(1, "a cat") + "\n" + lines(1, "A CAT")
    assert find(doubled, doubled) == [("dog", "a cat")]


def test_model_that_writes_none_yields_none(find):
    assert find("I cannot help with that.", "") == []
