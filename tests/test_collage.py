"""The collage: the same picture for the same request, what it draws and what it says it could not, and its halves."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.generators.collage import CollageEditor, CollageGenerator
from openmaia.generators.collage.paint import COLOURS
from openmaia.generators.collage.scene import Scene, read
from openmaia.images import Picture
from openmaia.pictures.library import Library
from openmaia.pictures.vocabulary import WORDS, Kind, of_kind
from openmaia.services import Drawn, Edit, Generation, Half
from tests.prepare import CACHE
from tests.samples import noise

SIZE = 160
NAMED = [
    "a red circle on a grey background",
    "a dog on grass",
    "a guitar next to a drum",
    "vertical stripes",
    "three stars",
]


@pytest.fixture(scope="module")
def library() -> Library:
    root = CACHE / "packages-v1"
    if not root.is_dir():
        pytest.skip(f"{root} is missing: run python -m tests.prepare, which needs apt-get")
    return Library.open(root)


@pytest.fixture(scope="module")
def generator(library: Library) -> CollageGenerator:
    return CollageGenerator(library, SIZE)


@pytest.fixture(scope="module")
def editor(library: Library) -> CollageEditor:
    return CollageEditor(library, SIZE)


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> CollageGenerator:
    """A collage without any picture: it can draw shapes, colours, patterns and grounds."""
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    return CollageGenerator(Library.open(folder), SIZE)


@pytest.fixture(scope="module")
def redrawing(tmp_path_factory: pytest.TempPathFactory) -> CollageEditor:
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    return CollageEditor(Library.open(folder), SIZE)


def draw(generator: CollageGenerator, prompt: str, seed: int = 0, half: Half = "explore") -> Drawn:
    return generator.generate([Generation(prompt=prompt, seed=seed, half=half)])[0]


def scene(drawn: Drawn) -> Scene:
    return Scene.loads(drawn.picture.recipe)


def figures(drawn: Drawn) -> list[tuple[str, str]]:
    return [(figure.colour, figure.what) for figure in scene(drawn).figures]


def near(picture: Picture, colour: str, distance: int = 60) -> float:
    """Share of the pixels close to a colour."""
    return float((np.abs(picture.pixels.astype(int) - COLOURS[colour]).max(axis=2) < distance).mean())


# -- the same request, the same picture ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", NAMED)
def test_a_picture_depends_on_prompt_and_seed_alone(generator: CollageGenerator, library: Library, prompt: str):
    fresh = CollageGenerator(library, SIZE)
    batch = [Generation(prompt=p, seed=s) for p in NAMED for s in (3, 4)]
    for request, drawn in zip(batch, fresh.generate(batch), strict=True):
        if request.prompt == prompt:
            again = draw(generator, prompt, request.seed)
            assert (again.picture, again.undrawn) == (drawn.picture, drawn.undrawn)


@pytest.mark.parametrize("prompt", NAMED)
def test_another_seed_gives_another_picture(generator: CollageGenerator, prompt: str):
    assert len({draw(generator, prompt, seed).picture.digest for seed in range(6)}) == 6


def test_seeds_of_63_bits_are_taken(drawing: CollageGenerator):
    assert draw(drawing, "a star", 2**63 - 1).picture.pixels.shape == (SIZE, SIZE, 3)


def test_no_requests_are_no_pictures(drawing: CollageGenerator):
    assert drawing.generate([]) == []


# -- what is drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", sorted(COLOURS))
def test_a_coloured_shape_has_its_colour(drawing: CollageGenerator, colour: str):
    ground = "white" if colour in ("grey", "black") else "black" if colour == "white" else "grey"
    picture = draw(drawing, f"a {colour} square on a {ground} background", 1).picture
    assert 0.2 < near(picture, colour) < 0.7


@pytest.mark.parametrize("name", [word.name for word in of_kind(Kind.SCENE)])
def test_a_ground_is_drawn_behind_the_figure(drawing: CollageGenerator, name: str):
    drawn = draw(drawing, f"a purple circle on {name}")
    assert scene(drawn).ground == name
    assert drawn.undrawn == ()
    assert near(drawn.picture, "purple") > 0.1


def test_grass_is_green_and_snow_is_bright(drawing: CollageGenerator):
    grass, snow = (
        draw(drawing, f"a black circle on {name}").picture.pixels[:20].mean(axis=(0, 1)) for name in ("grass", "snow")
    )
    assert grass[1] > grass[0] > grass[2]
    assert snow.min() > 200


@pytest.mark.parametrize(
    ("word", "count"), [("two", 2), ("three", 3), ("four", 4), ("five", 5), ("six", 6), ("many", 6)]
)
def test_as_many_are_drawn_as_are_asked_for(drawing: CollageGenerator, word: str, count: int):
    drawn = draw(drawing, f"{word} red circles on a white background")
    assert figures(drawn) == [("red", "circle")] * count
    assert drawn.undrawn == ()


def test_figures_of_a_count_do_not_lie_on_each_other(drawing: CollageGenerator):
    one, four = (near(draw(drawing, f"{n} red squares on a white background").picture, "red") for n in ("one", "four"))
    assert four > 0.6 * one


@pytest.mark.parametrize("joint", ["next to", "beside", "and", "with"])
def test_two_things_side_by_side(drawing: CollageGenerator, joint: str):
    drawn = draw(drawing, f"a red circle {joint} a blue square on a white background")
    assert figures(drawn) == [("red", "circle"), ("blue", "square")]
    left, right = drawn.picture.pixels[:, : SIZE // 2], drawn.picture.pixels[:, SIZE // 2 :]
    assert near(Picture.of(np.ascontiguousarray(left)), "red") > 0.1
    assert near(Picture.of(np.ascontiguousarray(right)), "blue") > 0.1


def test_sizes_are_sizes(drawing: CollageGenerator):
    shares = [
        near(draw(drawing, f"a {s} red square on a white background").picture, "red")
        for s in ("tiny", "small", "large")
    ]
    assert shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize(
    ("place", "axis", "sign"), [("left", 1, -1), ("right", 1, 1), ("top", 0, -1), ("bottom", 0, 1)]
)
def test_places_are_places(drawing: CollageGenerator, place: str, axis: int, sign: int):
    drawn = draw(drawing, f"a small red square on the {place}, on a white background")
    red = np.abs(drawn.picture.pixels.astype(int) - COLOURS["red"]).max(axis=2) < 60
    assert sign * (np.argwhere(red).mean(axis=0)[axis] - SIZE / 2) > SIZE / 10


@pytest.mark.parametrize("name", [word.name for word in of_kind(Kind.PATTERN)])
def test_a_pattern_fills_the_picture_in_its_colour(drawing: CollageGenerator, name: str):
    drawn = draw(drawing, f"red {name}")
    assert (scene(drawn).ground, scene(drawn).ground_colour) == (name, "red")
    assert near(drawn.picture, "red", 80) > 0.05


def test_stripes_run_the_way_they_are_called(drawing: CollageGenerator):
    for name, axis in (("horizontal stripes", 0), ("vertical stripes", 1)):
        grey = draw(drawing, f"black {name}").picture.pixels.mean(axis=2)
        assert np.abs(np.diff(grey, axis=axis)).mean() > 20 * np.abs(np.diff(grey, axis=1 - axis)).mean()


def test_a_colour_alone_fills_the_picture(drawing: CollageGenerator):
    assert near(draw(drawing, "red").picture, "red") > 0.95


@pytest.mark.parametrize("name", [word.name for word in WORDS])
def test_every_word_of_the_vocabulary_can_be_drawn(generator: CollageGenerator, name: str):
    assert draw(generator, f"a {name}").undrawn == ()


@pytest.mark.parametrize("half", ["explore", "test"])
@pytest.mark.parametrize("name", [word.name for word in of_kind(Kind.OBJECT)])
def test_every_object_can_be_drawn_from_each_half(generator: CollageGenerator, name: str, half: Half):
    drawn = draw(generator, f"a {name} on a grey background", 0, half)
    assert drawn.undrawn == ()
    assert drawn.picture.sources


def test_a_red_dog_is_red(generator: CollageGenerator):
    def redness(drawn: Drawn) -> float:
        red, green, blue = drawn.picture.pixels.astype(float).mean(axis=(0, 1))
        return float(red - max(green, blue))

    assert redness(draw(generator, "a red dog on a grey background", 2)) > 10 + redness(
        draw(generator, "a dog on a grey background", 2)
    )


# -- what is not drawn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "undrawn"),
    [
        ("a zyzzyva on grass", {"zyzzyva"}),
        ("a red circle and a zyzzyva", {"zyzzyva"}),
        ("a shiny red circle", {"shiny"}),
        ("a turquoise circle", {"turquoise"}),
        ("a circle on a xylograph", {"xylograph"}),
        ("7 circles", {"7"}),
    ],
)
def test_words_that_were_not_drawn_are_reported(drawing: CollageGenerator, prompt: str, undrawn: set[str]):
    assert set(draw(drawing, prompt).undrawn) == undrawn


@pytest.mark.parametrize(
    "prompt",
    [
        "собака",
        "",
        "   ",
        "!?",
        "\x00",
        "a",
        "the of and",
        "." * 2000,
        "x" * 2000,
        "[(*+?",
        "in " * 600,
        "zq" + "-a" * 900,
        "a zq, " * 330,
        "zqo " * 500,
    ],
)
def test_a_prompt_of_which_nothing_is_understood_is_reported_and_still_gives_a_picture(
    drawing: CollageGenerator, prompt: str
):
    began = time.monotonic()
    drawn = draw(drawing, prompt)
    assert drawn.undrawn
    assert drawn.picture.pixels.shape == (SIZE, SIZE, 3)
    assert time.monotonic() - began < 2


def test_nouns_this_half_has_no_picture_of_are_reported(drawing: CollageGenerator):
    drawn = draw(drawing, "a dog next to a red circle")
    assert drawn.undrawn == ("dog",)
    assert figures(drawn) == [("red", "circle")]


@pytest.mark.parametrize("prompt", NAMED)
def test_what_was_drawn_is_not_reported(generator: CollageGenerator, prompt: str):
    assert draw(generator, prompt).undrawn == ()


def test_the_words_of_a_scene_are_those_of_the_prompt():
    made, unknown = read("Two large RED dogs next to a cup, on the beach.", 0, lambda word: False)
    assert [(f.colour, f.what, f.size) for f in made.figures] == [("red", "dog", 0.85)] * 2 + [("", "cup", 0.0)]
    assert (made.ground, unknown) == ("sand", ())


def test_a_recipe_reads_back(generator: CollageGenerator):
    made = scene(draw(generator, "two small red circles next to a dog on grass"))
    assert Scene.loads(made.dumps()) == made


# -- edits ---------------------------------------------------------------------------------------------------------------


def edited(editor: CollageEditor, drawn: Drawn, instruction: str) -> Drawn:
    return editor.edit([Edit(picture=drawn.picture, instruction=instruction, seed=9)])[0]


@pytest.mark.parametrize(
    "order", ["replace the circle with a star", "change the circle to a star", "turn the circle into a star"]
)
def test_replacing_keeps_everything_else(drawing: CollageGenerator, redrawing: CollageEditor, order: str):
    before = draw(drawing, "a red circle next to a blue square on a white background")
    after = edited(redrawing, before, order)
    assert [what for _, what in figures(after)] == ["star", "square"]
    assert scene(after).ground == scene(before).ground
    right = np.s_[:, SIZE * 3 // 4 :]
    assert np.array_equal(after.picture.pixels[right], before.picture.pixels[right])
    assert after.undrawn == ()


def test_replacing_by_several_draws_all_of_them(drawing: CollageGenerator, redrawing: CollageEditor):
    after = edited(redrawing, draw(drawing, "a red circle on grass"), "replace the circle with two blue stars")
    assert figures(after) == [("blue", "star")] * 2


def test_adding_keeps_what_was_there(drawing: CollageGenerator, redrawing: CollageEditor):
    after = edited(redrawing, draw(drawing, "a red circle on grass"), "add a blue square")
    assert figures(after) == [("red", "circle"), ("blue", "square")]
    assert scene(after).ground == "grass"


@pytest.mark.parametrize(("order", "ground"), [
    ("change the background to grass", "grass"), ("make the background blue", "blue"), ("replace the background with snow.", "snow"),
])  # fmt: skip
def test_changing_the_background_keeps_the_figures(
    drawing: CollageGenerator, redrawing: CollageEditor, order: str, ground: str
):
    before = draw(drawing, "a red circle on a white background")
    after = edited(redrawing, before, order)
    assert scene(after).ground == ground
    assert scene(after).figures == scene(before).figures
    assert near(after.picture, "red") == pytest.approx(near(before.picture, "red"), abs=0.03)


@pytest.mark.parametrize(
    "order", ["make it green", "make the circle green", "change the color to green", "Colour it green."]
)
def test_changing_the_colour_keeps_the_rest(drawing: CollageGenerator, redrawing: CollageEditor, order: str):
    before = draw(drawing, "a red circle on a white background")
    after = edited(redrawing, before, order)
    assert figures(after) == [("green", "circle")]
    assert near(after.picture, "green") == pytest.approx(near(before.picture, "red"), abs=0.03)


def test_only_the_figure_named_changes_its_colour(drawing: CollageGenerator, redrawing: CollageEditor):
    after = edited(redrawing, draw(drawing, "a red circle next to a blue square"), "make the square green")
    assert figures(after) == [("red", "circle"), ("green", "square")]


def test_removing_leaves_the_others(drawing: CollageGenerator, redrawing: CollageEditor):
    after = edited(redrawing, draw(drawing, "a red circle next to a blue square"), "remove the circle")
    assert figures(after) == [("blue", "square")]


def test_edits_are_the_same_every_time(editor: CollageEditor, generator: CollageGenerator, library: Library):
    before = draw(generator, "a dog on grass", 4)
    orders = ["replace the dog with a cup", "add a star", "change the background to sand", "make it blue"]
    for order in orders:
        assert edited(editor, before, order) == edited(CollageEditor(library, SIZE), before, order)


def test_edits_of_edits_go_on(drawing: CollageGenerator, redrawing: CollageEditor):
    once = edited(redrawing, draw(drawing, "a red circle on grass"), "add a blue square")
    twice = edited(redrawing, once, "change the background to snow")
    assert (figures(twice), scene(twice).ground) == ([("red", "circle"), ("blue", "square")], "snow")


@pytest.mark.parametrize(
    "order",
    ["make it bigger", "zoom in", "", "  ", "?", "replace", "add", "remove the elephant", "add a zyzzyva",
     "replace the circle with a zyzzyva", "change the background to a zyzzyva", "change the background to a building",
     "make it turquoise", "собака", "x" * 2000],
)  # fmt: skip
def test_what_an_edit_did_not_do_is_reported(drawing: CollageGenerator, redrawing: CollageEditor, order: str):
    before = draw(drawing, "a red circle on grass")
    after = edited(redrawing, before, order)
    assert after.undrawn
    assert np.array_equal(after.picture.pixels, before.picture.pixels)


def test_a_foreign_picture_can_be_added_to(redrawing: CollageEditor):
    base = replace(noise(0, SIZE, SIZE), recipe="")
    after = redrawing.edit([Edit(picture=base, instruction="add a red square", seed=1)])[0]
    assert after.undrawn == ()
    assert near(after.picture, "red") > 0.1
    assert (after.picture.pixels == base.pixels).all(axis=2).mean() > 0.3
    assert set(base.sources) <= set(after.picture.sources)


@pytest.mark.parametrize(
    "order", ["replace the dog with a cup", "change the background to grass", "make the background blue"]
)
def test_what_cannot_be_done_to_a_foreign_picture_is_reported(redrawing: CollageEditor, order: str):
    base = replace(noise(0, SIZE, SIZE), recipe="")
    after = redrawing.edit([Edit(picture=base, instruction=order, seed=1)])[0]
    assert after.undrawn
    assert np.array_equal(after.picture.pixels, base.pixels)


# -- halves and matched pairs --------------------------------------------------------------------------------------------


def test_the_halves_never_share_a_picture(generator: CollageGenerator, editor: CollageEditor, library: Library):
    sources: dict[Half, set[str]] = {"explore": set(), "test": set()}
    prompts = [f"a {word.name}" for word in of_kind(Kind.OBJECT)] + [
        "a dog on wood",
        "two birds on stone",
        "a cup next to a drum on water",
    ]
    for half, used in sources.items():
        for seed in range(2):
            for prompt in prompts:
                used.update(draw(generator, prompt, seed, half).picture.sources)
        base = draw(generator, "a dog on grass", 0, half).picture
        for order in ("replace the dog with a cup", "add a bird", "change the background to wood"):
            used.update(editor.edit([Edit(picture=base, instruction=order, seed=1, half=half)])[0].picture.sources)
    assert min(len(used) for used in sources.values()) > 30
    assert sources["explore"] & sources["test"] == set()
    for half, used in sources.items():
        assert used <= {item.digest for item in library.items if item.half == half}


def test_every_picture_names_what_it_was_made_of(generator: CollageGenerator):
    assert len(draw(generator, "a dog next to a cup on a grey background").picture.sources) == 2
    assert draw(generator, "a red circle on a grey background").picture.sources == ()


def ring(picture: Picture) -> np.ndarray:
    """The outermost pixels, where no figure of usual size reaches."""
    pixels = picture.pixels
    return np.concatenate([pixels[:4].reshape(-1, 3), pixels[-4:].reshape(-1, 3)])


@pytest.mark.parametrize(
    "ground", ["a grey background", "grass", "sand", "water", "a white background", "wood", "stone"]
)
@pytest.mark.parametrize("pair", [("dog", "cup"), ("bird", "guitar"), ("circle", "star"), ("apple", "road sign")])
def test_a_matched_pair_of_one_seed_shares_its_ground(generator: CollageGenerator, pair: tuple[str, str], ground: str):
    for seed in range(3):
        one, other = (draw(generator, f"a {name} on {ground}", seed, "test").picture for name in pair)
        assert np.array_equal(ring(one), ring(other))
        assert one.digest != other.digest


@pytest.mark.parametrize("pair", [("circle", "square"), ("square", "cross")])
def test_a_matched_pair_of_one_seed_shares_its_layout(drawing: CollageGenerator, pair: tuple[str, str]):
    def box(name: str, seed: int) -> list[int]:
        pixels = draw(drawing, f"a red {name} on a white background", seed).picture.pixels.astype(int)
        places = np.argwhere(np.abs(pixels - COLOURS["red"]).max(axis=2) < 60)
        return [*places.min(axis=0).tolist(), *places.max(axis=0).tolist()]

    boxes = [(box(pair[0], seed), box(pair[1], seed)) for seed in range(5)]
    assert all(np.abs(np.subtract(one, other)).max() <= 2 for one, other in boxes)
    assert len({tuple(one) for one, _ in boxes}) == 5


def test_a_picture_is_no_larger_than_asked(tmp_path: Path):
    Image.new("RGB", (40, 40)).save(tmp_path / "only.png")
    for size in (64, 97, 256):
        maker = CollageGenerator(Library.open(tmp_path), size)
        assert draw(maker, "three red circles on grass").picture.pixels.shape == (size, size, 3)
