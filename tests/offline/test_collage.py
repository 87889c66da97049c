"""The collage: reproducible images, what it draws, what it reports as not drawn, its edits, and its splits."""

import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation, Split
from openmaia.datasets.library import ImageDataset
from openmaia.offline.collage import CollageEditor, CollageGenerator, paint
from openmaia.offline.collage.lexicon import Lexicon
from openmaia.offline.collage.paint import PAINTS
from openmaia.offline.collage.scene import CollageScene, read
from openmaia.offline.vocabulary.words import BY_NAME, WORDS, WordKind, of_kind
from tests.helpers.samples import noise
from tests.prepare import packages

SIZE = 160
PROMPTS = [
    "a red circle on a grey background",
    "a carnivore on grass",
    "a musical instrument next to a tool",
    "vertical stripes",
    "three stars",
]
OBJECTS = [word.name for word in of_kind(WordKind.OBJECT)]


@pytest.fixture(scope="module")
def library() -> ImageDataset:
    return ImageDataset.open(packages())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    """A library without parts: shapes, colours, patterns and grounds can be drawn."""
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    return ImageDataset.open(folder)


@pytest.fixture(scope="module")
def generator(library: ImageDataset) -> CollageGenerator:
    return CollageGenerator(library, SIZE)


@pytest.fixture(scope="module")
def editor(library: ImageDataset) -> CollageEditor:
    return CollageEditor(library)


@pytest.fixture(scope="module")
def drawing(bare: ImageDataset) -> CollageGenerator:
    return CollageGenerator(bare, SIZE)


@pytest.fixture(scope="module")
def redrawing(bare: ImageDataset) -> CollageEditor:
    return CollageEditor(bare)


def draw(generator: CollageGenerator, prompt: str, seed: int = 0, split: Split = "explore") -> GeneratedImage:
    return generator.generate([Generation(prompt=prompt, seed=seed, split=split)])[0]


def edited(editor: CollageEditor, drawn: GeneratedImage, instruction: str) -> GeneratedImage:
    return editor.edit([Edit(image=drawn.image, instruction=instruction, seed=9)])[0]


def scene(drawn: GeneratedImage) -> CollageScene:
    return CollageScene.loads(drawn.image.recipe)


def figures(drawn: GeneratedImage) -> list[tuple[str, str]]:
    return [(figure.colour, figure.what) for figure in scene(drawn).figures]


def near(image: EncodedImage, colour: str, distance: int = 60) -> float:
    """Share of the pixels close to a colour."""
    return float((np.abs(image.pixels.astype(int) - PAINTS[colour]).max(axis=2) < distance).mean())


# -- reproducibility -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", PROMPTS)
def test_image_depends_on_prompt_and_seed_only(generator: CollageGenerator, library: ImageDataset, prompt: str):
    batch = [Generation(prompt=p, seed=s) for p in PROMPTS for s in (3, 4)]
    for request, drawn in zip(batch, CollageGenerator(library, SIZE).generate(batch), strict=True):
        if request.prompt == prompt:
            assert draw(generator, prompt, request.seed) == drawn


@pytest.mark.parametrize("prompt", PROMPTS)
def test_image_differs_between_seeds(generator: CollageGenerator, prompt: str):
    assert len({draw(generator, prompt, seed).image.digest for seed in [*range(5), 2**63 - 1]}) == 6


# -- what is drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", sorted(PAINTS))
def test_shape_has_its_colour(drawing: CollageGenerator, colour: str):
    ground = "white" if colour in ("grey", "black") else "black" if colour == "white" else "grey"
    image = draw(drawing, f"a {colour} square on a {ground} background", 1).image
    assert 0.2 < near(image, colour) < 0.7


@pytest.mark.parametrize("name", [word.name for word in of_kind(WordKind.SCENE)])
def test_ground_is_behind_the_figure(drawing: CollageGenerator, name: str):
    drawn = draw(drawing, f"a purple circle on {name}")
    assert (scene(drawn).ground, drawn.missing_terms) == (name, ())
    assert near(drawn.image, "purple") > 0.1


def test_grounds_have_plausible_colours(drawing: CollageGenerator):
    grass, snow = (
        draw(drawing, f"a black circle on {name}").image.pixels[:20].mean(axis=(0, 1)) for name in ("grass", "snow")
    )
    assert grass[1] > grass[0] > grass[2]
    assert snow.min() > 200


@pytest.mark.parametrize(
    ("word", "count"), [("two", 2), ("three", 3), ("four", 4), ("five", 5), ("six", 6), ("many", 6)]
)
def test_count_words_are_counts(drawing: CollageGenerator, word: str, count: int):
    drawn = draw(drawing, f"{word} red circles on a white background")
    assert figures(drawn) == [("red", "circle")] * count
    assert drawn.missing_terms == ()


def test_counted_figures_do_not_overlap(drawing: CollageGenerator):
    one, four = (near(draw(drawing, f"{n} red squares on a white background").image, "red") for n in ("one", "four"))
    assert four > 0.6 * one


@pytest.mark.parametrize("joint", ["next to", "beside", "and", "with"])
def test_two_figures_are_side_by_side(drawing: CollageGenerator, joint: str):
    drawn = draw(drawing, f"a red circle {joint} a blue square on a white background")
    assert figures(drawn) == [("red", "circle"), ("blue", "square")]
    left, right = drawn.image.pixels[:, : SIZE // 2], drawn.image.pixels[:, SIZE // 2 :]
    assert near(EncodedImage.of(np.ascontiguousarray(left)), "red") > 0.1
    assert near(EncodedImage.of(np.ascontiguousarray(right)), "blue") > 0.1


def test_size_words_are_sizes(drawing: CollageGenerator):
    prompts = [f"a {size} red square on a white background" for size in ("tiny", "small", "large")]
    shares = [near(draw(drawing, prompt).image, "red") for prompt in prompts]
    assert shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize(
    ("place", "axis", "sign"), [("left", 1, -1), ("right", 1, 1), ("top", 0, -1), ("bottom", 0, 1)]
)
def test_place_words_are_places(drawing: CollageGenerator, place: str, axis: int, sign: int):
    drawn = draw(drawing, f"a small red square on the {place}, on a white background")
    red = np.abs(drawn.image.pixels.astype(int) - PAINTS["red"]).max(axis=2) < 60
    assert sign * (np.argwhere(red).mean(axis=0)[axis] - SIZE / 2) > SIZE / 10


@pytest.mark.parametrize("name", [word.name for word in of_kind(WordKind.PATTERN)])
def test_pattern_fills_the_image_in_its_colour(drawing: CollageGenerator, name: str):
    drawn = draw(drawing, f"red {name}")
    assert (scene(drawn).ground, scene(drawn).ground_colour) == (name, "red")
    assert near(drawn.image, "red", 80) > 0.05


def test_stripes_have_their_direction(drawing: CollageGenerator):
    for name, axis in (("horizontal stripes", 0), ("vertical stripes", 1)):
        grey = draw(drawing, f"black {name}").image.pixels.mean(axis=2)
        assert np.abs(np.diff(grey, axis=axis)).mean() > 20 * np.abs(np.diff(grey, axis=1 - axis)).mean()


def test_colour_alone_fills_the_image(drawing: CollageGenerator):
    assert near(draw(drawing, "red").image, "red") > 0.95


@pytest.mark.parametrize("name", [word.name for word in WORDS])
def test_every_word_can_be_drawn(generator: CollageGenerator, name: str):
    assert draw(generator, f"a {name}").missing_terms == ()


@pytest.mark.parametrize("split", ["explore", "test"])
@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_can_be_drawn_from_each_split(generator: CollageGenerator, name: str, split: Split):
    drawn = draw(generator, f"a {name} on a grey background", 0, split)
    assert drawn.missing_terms == ()
    assert drawn.image.sources


def test_cutouts_can_be_tinted(generator: CollageGenerator):
    def redness(drawn: GeneratedImage) -> float:
        red, green, blue = drawn.image.pixels.astype(float).mean(axis=(0, 1))
        return float(red - max(green, blue))

    red, plain = (draw(generator, f"a {name} on a grey background", 2) for name in ("red carnivore", "carnivore"))
    assert redness(red) > 10 + redness(plain)


def test_scene_is_parsed_from_the_prompt():
    made, unknown = read("Two large RED carnivores next to a tool, on the beach.", 0, lambda word: False)
    assert [(f.colour, f.what, f.size) for f in made.figures] == [("red", "carnivore", 0.85)] * 2 + [("", "tool", 0.0)]
    assert (made.ground, unknown) == ("sand", ())


def test_recipe_is_read_as_written(generator: CollageGenerator):
    made = scene(draw(generator, "two small red circles next to a carnivore on grass"))
    assert CollageScene.loads(made.dumps()) == made


# -- what is not drawn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "missing_terms"),
    [
        ("a zyzzyva on grass", {"zyzzyva"}),
        ("a red circle and a zyzzyva", {"zyzzyva"}),
        ("a shiny red circle", {"shiny"}),
        ("a turquoise circle", {"turquoise"}),
        ("a circle on a xylograph", {"xylograph"}),
        ("7 circles", {"7"}),
        ("a red circle in a green jar", {"jar"}),
        ("a red circle on a green striped background and sand", {"striped"}),
        ("a red circle on a white blue background", {"blue"}),
        ("a red blue circle", {"blue"}),
        ("a carnivore next to a red circle", {"carnivore"}),
    ],
)
def test_missing_terms_are_reported(drawing: CollageGenerator, prompt: str, missing_terms: set[str]):
    assert set(draw(drawing, prompt).missing_terms) == missing_terms


@pytest.mark.parametrize(
    ("prompt", "missing_terms", "drawn"),
    [
        ("an old building", {"old"}, [("", "building")]),
        ("a dotted ball", {"dots"}, [("", "ball")]),
        ("a bird on blue grass", set(), [("", "bird")]),
    ],
)
def test_attributes_that_cannot_be_drawn_are_reported(
    generator: CollageGenerator, prompt: str, missing_terms: set[str], drawn: list[tuple[str, str]]
):
    made = draw(generator, prompt)
    assert (set(made.missing_terms), figures(made)) == (missing_terms, drawn)


@pytest.mark.parametrize("prompt", ["a circle on {}grass", "a photo of {}grass"])
def test_scenery_has_its_colour(drawing: CollageGenerator, prompt: str):
    plain, blue = (draw(drawing, prompt.format(colour)) for colour in ("", "blue "))
    assert near(blue.image, "blue") > near(plain.image, "blue") + 0.1 and blue.missing_terms == ()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_drawn_terms_are_not_reported(generator: CollageGenerator, prompt: str):
    assert draw(generator, prompt).missing_terms == ()


@pytest.mark.parametrize(
    "prompt",
    ["собака", "", "   ", "!?", "\x00", "a", "the of and", "." * 2000, "x" * 2000, "[(*+?", "in " * 600, "zq" + "-a" * 900,
     "a zq, " * 330, "zqo " * 500],
)  # fmt: skip
def test_unusable_prompt_gives_an_image_soon(drawing: CollageGenerator, prompt: str):
    began = time.process_time()
    drawn = draw(drawing, prompt)
    assert drawn.missing_terms
    assert drawn.image.pixels.shape == (SIZE, SIZE, 3)
    assert time.process_time() - began < 2


# -- edits ---------------------------------------------------------------------------------------------------------------

CIRCLE = ("red", "circle")
SQUARE = ("blue", "square")


@pytest.mark.parametrize(
    ("order", "result", "ground"),
    [
        ("replace the circle with a star", [("", "star"), SQUARE], "grass"),
        ("change the circle to a star", [("", "star"), SQUARE], "grass"),
        ("turn the circle into a star", [("", "star"), SQUARE], "grass"),
        ("replace the circle with two blue stars", [("blue", "star"), ("blue", "star"), SQUARE], "grass"),
        ("add a green star", [CIRCLE, SQUARE, ("green", "star")], "grass"),
        ("remove the circle", [SQUARE], "grass"),
        ("make the square green", [CIRCLE, ("green", "square")], "grass"),
        ("make it green", [("green", "circle"), ("green", "square")], "grass"),
        ("change the color to green", [("green", "circle"), ("green", "square")], "grass"),
        ("Colour it green.", [("green", "circle"), ("green", "square")], "grass"),
        ("change the background to sand", [CIRCLE, SQUARE], "sand"),
        ("make the background blue", [CIRCLE, SQUARE], "blue"),
        ("replace the background with snow.", [CIRCLE, SQUARE], "snow"),
        ("change the green background to snow", [CIRCLE, SQUARE], "snow"),
        ("replace the grass with snow", [CIRCLE, SQUARE], "snow"),
        ("change the colour of the background to blue", [CIRCLE, SQUARE], "blue"),
        ("make the circle in the background green", [("green", "circle"), SQUARE], "grass"),
        ("replace the circle in the background with a star", [("", "star"), SQUARE], "grass"),
    ],
)
def test_edit_changes_what_it_names(
    drawing: CollageGenerator, redrawing: CollageEditor, order: str, result: list[tuple[str, str]], ground: str
):
    after = edited(redrawing, draw(drawing, "a red circle next to a blue square on grass"), order)
    assert figures(after) == result
    assert (scene(after).ground, after.missing_terms) == (ground, ())


@pytest.mark.parametrize("prompt", ["red", "a red background", "red horizontal stripes"])
def test_an_image_without_figures_is_recoloured(drawing: CollageGenerator, redrawing: CollageEditor, prompt: str):
    before = draw(drawing, prompt)
    after = edited(redrawing, before, "make it blue")
    assert near(before.image, "red") > 0.3 and near(after.image, "red") < 0.05
    assert near(after.image, "blue") > 0.3 and after.missing_terms == ()


def test_scenery_without_figures_cannot_be_recoloured(drawing: CollageGenerator, redrawing: CollageEditor):
    before = draw(drawing, "on grass")
    after = edited(redrawing, before, "make it blue")
    assert after.missing_terms == ("make it blue",)
    assert np.array_equal(after.image.pixels, before.image.pixels)


def test_replacing_keeps_the_other_pixels(drawing: CollageGenerator, redrawing: CollageEditor):
    before = draw(drawing, "a red circle next to a blue square on a white background")
    after = edited(redrawing, before, "replace the circle with a star")
    right = np.s_[:, SIZE * 3 // 4 :]
    assert np.array_equal(after.image.pixels[right], before.image.pixels[right])


@pytest.mark.parametrize(("order", "colour"), [("change the background to grass", "red"), ("make it green", "green")])
def test_edit_keeps_the_size(drawing: CollageGenerator, redrawing: CollageEditor, order: str, colour: str):
    before = draw(drawing, "a red circle on a white background")
    assert near(edited(redrawing, before, order).image, colour) == pytest.approx(near(before.image, "red"), abs=0.03)


def test_edits_are_reproducible(editor: CollageEditor, generator: CollageGenerator, library: ImageDataset):
    before = draw(generator, "a carnivore on grass", 4)
    for order in ("replace the carnivore with a tool", "add a star", "change the background to sand", "make it blue"):
        assert edited(editor, before, order) == edited(CollageEditor(library), before, order)


def test_edits_can_be_edited(drawing: CollageGenerator, redrawing: CollageEditor):
    once = edited(redrawing, draw(drawing, "a red circle on grass"), "add a blue square")
    twice = edited(redrawing, once, "change the background to snow")
    assert (figures(twice), scene(twice).ground) == ([CIRCLE, SQUARE], "snow")


@pytest.mark.parametrize(
    "order",
    ["make it bigger", "zoom in", "", "  ", "?", "replace", "add", "remove the elephant", "add a zyzzyva",
     "replace the circle with a zyzzyva", "change the background to a zyzzyva", "change the background to a building",
     "make it turquoise", "make the grass blue", "make the grass gray", "replace the flower with a star", "собака", "x" * 2000],
)  # fmt: skip
def test_unusable_edit_is_reported(drawing: CollageGenerator, redrawing: CollageEditor, order: str):
    before = draw(drawing, "a red circle on grass")
    after = edited(redrawing, before, order)
    assert after.missing_terms
    assert np.array_equal(after.image.pixels, before.image.pixels)


def test_foreign_image_can_be_added_to(redrawing: CollageEditor):
    base = replace(noise(0, SIZE, SIZE), recipe="")
    after = redrawing.edit([Edit(image=base, instruction="add a red square", seed=1)])[0]
    assert after.missing_terms == ()
    assert near(after.image, "red") > 0.1
    assert (after.image.pixels == base.pixels).all(axis=2).mean() > 0.3
    assert set(base.sources) <= set(after.image.sources)


@pytest.mark.parametrize(
    "order", ["replace the carnivore with a tool", "change the background to grass", "make the background blue"]
)
def test_foreign_image_cannot_be_taken_apart(redrawing: CollageEditor, order: str):
    base = replace(noise(0, SIZE, SIZE), recipe="")
    after = redrawing.edit([Edit(image=base, instruction=order, seed=1)])[0]
    assert after.missing_terms
    assert np.array_equal(after.image.pixels, base.pixels)


# -- splits and matched pairs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("split", ["explore", "test"])
def test_every_object_has_images_in_each_half(library: ImageDataset, split: Split, name: str):
    lexicon = Lexicon(library, split)
    assert len(lexicon.cutouts(name) or lexicon.photos(name)) >= (1 if BY_NAME[name].is_exact else 4)


def test_photographs_on_an_even_ground_serve_as_cutouts(library: ImageDataset):
    for split in ("explore", "test"):
        for word, is_round in (("ball", True), ("wrench", False)):
            photographs = [item for item in Lexicon(library, split).cutouts(word) if item.kind == "photo"]
            assert photographs
            for item in photographs:
                alpha = np.asarray(paint.without_ground(item.load(), is_round=is_round).getchannel("A"))
                assert not alpha[[0, 0, -1, -1], [0, -1, 0, -1]].any()
                assert 0.05 < (alpha > 0).mean() < 0.8


def test_splits_share_no_part(generator: CollageGenerator, editor: CollageEditor, library: ImageDataset):
    sources: dict[Split, set[str]] = {"explore": set(), "test": set()}
    prompts = [f"a {name}" for name in OBJECTS] + [
        "a carnivore on wood",
        "two birds on stone",
        "a tool next to a ball on water",
    ]
    for split, used in sources.items():
        for seed in range(3):
            for prompt in prompts:
                used.update(draw(generator, prompt, seed, split).image.sources)
        base = draw(generator, "a carnivore on grass", 0, split).image
        for order in ("replace the carnivore with a tool", "add a bird", "change the background to wood"):
            used.update(editor.edit([Edit(image=base, instruction=order, seed=1, split=split)])[0].image.sources)
    assert min(len(used) for used in sources.values()) > 30
    assert sources["explore"] & sources["test"] == set()
    for split, used in sources.items():
        assert used <= {item.digest for item in library.items if item.split == split}


def test_image_names_its_parts(generator: CollageGenerator):
    assert len(draw(generator, "a carnivore next to a tool on a grey background").image.sources) == 2
    assert draw(generator, "a red circle on a grey background").image.sources == ()


def ring(image: EncodedImage) -> np.ndarray:
    """The outermost pixels, where no figure of usual size reaches."""
    pixels = image.pixels
    return np.concatenate([pixels[:4].reshape(-1, 3), pixels[-4:].reshape(-1, 3)])


@pytest.mark.parametrize(
    "ground", ["a grey background", "grass", "sand", "water", "a white background", "wood", "stone"]
)
@pytest.mark.parametrize(
    "pair", [("fish", "tool"), ("bird", "musical instrument"), ("circle", "star"), ("fruit", "road sign")]
)
def test_matched_pair_shares_its_ground(generator: CollageGenerator, pair: tuple[str, str], ground: str):
    for seed in range(3):
        one, other = (draw(generator, f"a {name} on {ground}", seed, "test").image for name in pair)
        assert np.array_equal(ring(one), ring(other))
        assert one.digest != other.digest


@pytest.mark.parametrize("pair", [("circle", "square"), ("square", "cross")])
def test_matched_pair_shares_its_layout(drawing: CollageGenerator, pair: tuple[str, str]):
    def box(name: str, seed: int) -> list[int]:
        pixels = draw(drawing, f"a red {name} on a white background", seed).image.pixels.astype(int)
        places = np.argwhere(np.abs(pixels - PAINTS["red"]).max(axis=2) < 60)
        return [*places.min(axis=0).tolist(), *places.max(axis=0).tolist()]

    boxes = [(box(pair[0], seed), box(pair[1], seed)) for seed in range(5)]
    assert all(np.abs(np.subtract(one, other)).max() <= 2 for one, other in boxes)
    assert len({tuple(one) for one, _ in boxes}) == 5


def test_image_has_the_requested_size(bare: ImageDataset):
    for size in (64, 97, 256):
        maker = CollageGenerator(bare, size)
        assert draw(maker, "three red circles on grass").image.pixels.shape == (size, size, 3)
