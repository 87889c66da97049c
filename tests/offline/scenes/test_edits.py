"""An edit changes what it names, and nothing else."""

import time
from dataclasses import replace

import numpy as np
import pytest

from openmaia.offline.scenes.edits import edit
from openmaia.offline.scenes.grammar import MAX_FIGURES, read
from openmaia.offline.scenes.graph import Figure, Scene
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import masks, render
from openmaia.offline.scenes.truth import holds

SIZE = 96


def scene(prompt: str, seed: int = 4) -> Scene:
    return settle(read(prompt, seed)[0])


def by_id(made: Scene) -> dict[int, Figure]:
    return {figure.id: figure for figure in made.figures}


BOAT = "a red boat and two white birds on the sea by day"


@pytest.mark.parametrize(
    ("instruction", "changed", "holds_now", "holds_no_more"),
    [
        ("remove the boat", {0}, "two birds", "a boat"),
        ("Remove the birds.", {1, 2}, "a boat", "a bird"),
        ("delete one bird", {1}, "a bird", "two birds"),
        ("make it blue", {0}, "a blue boat", "a red boat"),
        ("make the boat blue", {0}, "a blue boat", "a red boat"),
        ("change the color of the boat to blue", {0}, "a blue boat", "a red boat"),
        ("paint the boat green", {0}, "a green boat", "a red boat"),
        ("make the birds black", {1, 2}, "two black birds", "a white bird"),
        ("make the boat dotted", {0}, "a dotted boat", "a dotted bird"),
        ("make the boat bigger", {0}, "a big boat", "a small boat"),
        ("replace the boat with a duck", {0}, "a duck", "a boat"),
        ("change the boat into a purple duck", {0}, "a purple duck", "a boat"),
        ("replace the birds with planes", {1, 2}, "two planes", "a bird"),
        ("add two birds", {3, 4}, "four birds", "two birds"),
        ("add a cat on the boat", {3}, "a cat on a boat", "two cats"),
        ("put a dog next to the boat", {3}, "a dog beside a boat", "two dogs"),
        ("move the boat to the left", {0}, "a boat on the left", "a boat on the right"),
        ("move the boat far away", {0}, "a boat in the distance", "a boat in the foreground"),
        ("put the birds in the distance", {1, 2}, "two birds in the distance", "a bird in the foreground"),
        ("put the boat in the foreground", {0}, "a boat in the foreground", "a boat in the distance"),
        ("make the sails green", {0}, "a boat with green sails", "a green boat"),
        ("at night", set[int](), "at night", "by day"),
        ("make it night", set[int](), "at night", "by day"),
        ("set the scene at dusk", set[int](), "at dusk", "by day"),
        ("make it rain", set[int](), "in the rain", "sunny"),
        ("change the background to a beach", set[int](), "on the beach", "on the sea"),
        ("make the background yellow", set[int](), "a yellow background", "on the sea"),
        ("turn it into a pencil drawing", set[int](), "pencil drawing", "flat"),
    ],
)
def test_edit_changes_what_it_names(instruction: str, changed: set[int], holds_now: str, holds_no_more: str):
    before = scene(BOAT)
    after, _ = edit(before, instruction)
    old, new = by_id(before), by_id(after)
    assert {each for each in old.keys() | new.keys() if old.get(each) != new.get(each)} == changed
    assert (holds(after, holds_now), holds(after, holds_no_more)) == (True, False)
    if changed:
        same = replace(after, figures=before.figures)
        assert same == before
    else:
        assert after != before


@pytest.mark.parametrize(
    "instruction", ["make the boat blue", "remove the boat", "replace the boat with a duck", "make the boat striped"]
)
@pytest.mark.parametrize("prompt", [BOAT, "a red boat beside a tree in a meadow", "a cat and a red boat in a room"])
def test_pixels_away_from_the_figure_stay(instruction: str, prompt: str):
    before = scene(prompt)
    after, missing = edit(before, instruction)
    boat = next(figure.id for figure in before.figures if figure.kind == "boat")
    away = np.ones((SIZE, SIZE), np.bool_)
    for each in (before, after):
        rows, columns = np.nonzero(masks(each, SIZE).get(boat, np.zeros_like(away)))
        if len(rows):
            # The shadow lies around the foot.
            wide = (columns.max() - columns.min()) // 2 + 4
            away[max(rows.min() - 3, 0) : rows.max() + 12, max(columns.min() - wide, 0) : columns.max() + wide] = False
    one, other = render(before, SIZE), render(after, SIZE)
    assert missing == () and away.any()
    assert np.array_equal(one[away], other[away])
    assert not np.array_equal(one, other)


def test_recolouring_changes_the_pixels_of_the_figure_alone():
    before = scene("a red car and a blue house in the street")
    after, _ = edit(before, "make the car yellow")
    differs = (render(before, SIZE) != render(after, SIZE)).any(axis=2)
    car = masks(before, SIZE)[0]
    near = np.zeros_like(car)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            near |= np.roll(car, (down, right), (0, 1))
    assert differs.any() and not (differs & ~near).any()
    assert {each: mask.sum() for each, mask in masks(after, SIZE).items()} == {
        each: mask.sum() for each, mask in masks(before, SIZE).items()
    }


def test_edits_can_be_edited():
    first, _ = edit(scene(BOAT), "add a cat on the boat")
    second, missing = edit(first, "make the cat purple")
    assert holds(second, "a purple cat on a red boat") is True and missing == ()


@pytest.mark.parametrize(
    "instruction",
    ["", "  ", "?", "remove", "remove the elephant", "add a zyzzyva", "replace the boat with a zyzzyva", "make it glorious",
     "make the boat glorious", "zoom in", "make the elephant blue", "собака", "x" * 100_000, "make the sky pink",
     "remove " * 3000, "add " + "a boat and " * 5000, "<script>", "make it red rainbow"],
)  # fmt: skip
def test_unusable_edit_changes_nothing_and_is_named(instruction: str):
    before, began = scene(BOAT), time.process_time()
    after, missing = edit(before, instruction)
    assert (after, bool(missing)) == (before, True)
    assert all(len(each) <= 80 for each in missing)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("prompt", "instruction", "lost"),
    [
        ("a cat in a room", "make it rain", ("rain",)),
        ("a cat on a plain background", "make it night", ("night",)),
        ("a cat in a meadow in the rain", "change the background to a room", ()),
        ("a cat in a meadow, greyscale", "make the cat blue", ("blue",)),
        ("a cat and a red car in the street, greyscale", "make the cat red", ("red",)),
        ("a cat in a meadow, greyscale", "add two balloons and a car", ()),
        ("a cat in a meadow, greyscale", "replace the cat with a flower", ()),
        ("a cat in a meadow, greyscale", "make the cat striped", ()),
        ("a red house in a meadow, greyscale", "make the roof dotted", ()),
        ("a blue cat in a meadow", "make it greyscale", ()),
    ],
)
def test_edit_names_what_the_scene_cannot_show(prompt: str, instruction: str, lost: tuple[str, ...]):
    for seed in range(8):
        assert edit(scene(prompt, seed), instruction)[1] == lost


@pytest.mark.parametrize("instruction", ["add nine birds", "replace one bird with nine birds"])
def test_number_of_figures_is_bounded(instruction: str):
    made, missing = scene(BOAT), tuple[str, ...]()
    for _ in range(9):
        made, missing = edit(made, instruction)
    assert len(made.figures) == MAX_FIGURES and missing


def test_replacement_names_unknown_words_of_what_it_replaces():
    after, missing = edit(scene(BOAT), "replace the shiny boat with a duck")
    assert holds(after, "a duck") is True and missing == ("shiny",)


@pytest.mark.parametrize(
    ("prompt", "instruction"),
    [
        ("a cat on a table", "remove the table"),
        ("a dog, a house and a cat on a house", "replace two houses with one tree"),
    ],
)
def test_relation_ends_with_the_figure_that_it_names(prompt: str, instruction: str):
    without, missing = edit(scene(prompt), instruction)
    after, _ = edit(without, "add a boat")
    assert missing == () and holds(after, "a cat") is holds(after, "a boat") is True
    assert holds(after, "a cat on a boat") is False
