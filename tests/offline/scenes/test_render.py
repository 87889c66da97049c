"""Scenes are drawn in every size, alike and repeatably, and know what they show."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import HORIZON, settle
from openmaia.offline.scenes.render import masks, render
from openmaia.offline.scenes.words import PATTERNS, members

PROMPTS = (
    "two white boats with striped sails on the sea at dusk",
    "a cat on a table in a room",
    "red bricks",
    "three fish under water",
)
SIZES = (64, 96, 224, 512)


def scene(prompt: str, seed: int = 1) -> Scene:
    return settle(read(prompt, seed)[0])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_picture_depends_on_prompt_seed_and_size_alone(prompt: str):
    one, other = (render(scene(prompt, 7), 96) for _ in range(2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, render(scene(prompt, 8), 96))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_sizes_look_alike(prompt: str):
    made = scene(prompt)
    small = [
        np.asarray(Image.fromarray(render(made, size)).resize((32, 32), Image.Resampling.BOX), float) for size in SIZES
    ]
    for size, picture in zip(SIZES, small, strict=True):
        assert render(made, size).shape == (size, size, 3)
        assert np.abs(picture - small[-1]).mean() < 6


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_is_seen_in_every_place(kind: str):
    for place in HORIZON:
        made = settle(Scene(figures=(Figure(id=0, kind=kind),), place=place, seed=3))
        share = masks(made, 64)[0].mean()
        assert 0.008 < share < 0.8, (place, share)


@pytest.mark.parametrize("kind", [name for name, kind in kinds().items() if kind.colours])
def test_colour_shows_on_every_kind(kind: str):
    spread: list[float] = []
    for colour in ("red", "blue"):
        made = settle(
            Scene(
                figures=(Figure(id=0, kind=kind, paint=Paint(colour=colour)),),
                place="plain",
                ground=Paint(colour="grey"),
                seed=1,
            )
        )
        pixels = render(made, 96)[masks(made, 96)[0]].astype(float)
        spread.append(float(np.mean(pixels[:, 0] - pixels[:, 2])))
    assert spread[0] > spread[1] + 40


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_show_both_colours(pattern: str):
    for prompt in (f"red and white {pattern}", f"a red and white {pattern} ball on a blue background"):
        made, missing = read(prompt, 2)
        settled = settle(made)
        pixels = render(settled, 96).astype(int)
        shown = masks(settled, 96).get(0, np.ones((96, 96), np.bool_))
        shares = [(np.abs(pixels[shown] - COLOURS[colour]).max(axis=1) < 70).mean() for colour in ("red", "white")]
        assert missing == () and min(shares) > 0.1


def test_masks_do_not_overlap():
    found = masks(scene("a cat in front of a dog beside a house behind a car in the street"), 96)
    assert len(found) == 4
    assert np.sum(list(found.values()), axis=0).max() == 1


def test_matched_pair_differs_at_the_figure_alone():
    one, other = (scene(f"a red {kind} on the sea", 5) for kind in ("boat", "duck"))
    away = np.ones((96, 96), np.bool_)
    for each in (one, other):
        rows, columns = np.nonzero(masks(each, 96)[0])
        away[rows.min() - 3 : rows.max() + 12, max(columns.min() - 12, 0) : columns.max() + 12] = False
    assert (one.place, one.time, one.weather) == (other.place, other.time, other.weather)
    assert away.mean() > 0.2
    assert np.array_equal(render(one, 96)[away], render(other, 96)[away])


@pytest.mark.parametrize(
    ("relation", "test"),
    [
        ("on", lambda one, other: other.y - other.height - 0.02 < one.y < other.y),
        ("under", lambda one, other: one.height < other.height and abs(one.y - other.y) < 0.05),
        ("above", lambda one, other: one.y <= other.y - other.height),
        ("behind", lambda one, other: one.y < other.y),
        ("in front of", lambda one, other: one.y > other.y),
        ("to the left of", lambda one, other: one.x < other.x),
        ("to the right of", lambda one, other: one.x > other.x),
    ],
)
def test_relation_is_where_it_says(relation: str, test: object):
    for seed in range(6):
        cat, table = scene(f"a cat {relation} a table in a room", seed).figures
        assert cat.spot and table.spot and callable(test)
        assert test(cat.spot, table.spot), seed


def test_recipe_is_read_as_written():
    made = scene("a house with a red roof beside a striped ball on the beach")
    assert Scene.loads(made.dumps()) == made
    assert settle(made) == made


@pytest.mark.parametrize(
    "recipe", ["", "[]", "null", "{}", '{"format": "scene-1"}', '{"figures": [], "ground": "x"}', "a boat"]
)
def test_foreign_recipe_is_refused(recipe: str):
    with pytest.raises(ValueError, match="no recipe of a scene"):
        Scene.loads(recipe)


def test_pictures_of_times_and_weathers_differ():
    base = scene("a tree in a meadow by day")
    changes = [{"time": each} for each in ("morning", "dusk", "night")]
    changes += [{"weather": each} for each in ("cloudy", "rain", "storm", "snowfall", "fog")]
    changes += [
        {"style": each} for each in ("outlined", "pencil drawing", "night vision", "greyscale", "pixelated", "blurred")
    ]
    pictures = [render(base, 64), *(render(replace(base, **change), 64) for change in changes)]
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)


def test_groups_name_kinds():
    assert {"cat", "dog", "bird"} <= set(members("animal"))
    assert members("vehicle") and members("building") and "pine" in members("tree")


def test_large_pictures_have_finer_curves():
    for one, fine in zip(kinds().values(), kinds(4).values(), strict=True):
        assert [ink for ink, _, _ in one.shapes] == [ink for ink, _, _ in fine.shapes]
        assert np.abs(np.ptp(one.points, 0) - np.ptp(fine.points, 0)).max() < 2
        for (_, _, few), (_, _, many) in zip(one.shapes, fine.shapes, strict=True):
            assert many >= few


def test_figure_at_night_is_lighter_than_its_place():
    made = scene("a white rabbit in the forest at night")
    shown, pixels = masks(made, 96)[0], render(made, 96).astype(float)
    assert pixels[shown].mean() > 1.5 * pixels[~shown].mean()


def test_window_of_a_room_has_no_bands():
    pixels = render(scene("an apple in a room by day", 1), 512).astype(int)
    left = np.argmax([np.ptp(pixels[60:200, x].sum(1)) if x % 8 == 0 else 0 for x in range(512)])
    steps = np.abs(np.diff(pixels[70:110, left].sum(1)))
    assert steps.max() < 12
