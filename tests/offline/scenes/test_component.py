"""The generator and the editor `scenes` from a config."""

import numpy as np
import pytest

from openmaia.assembly import generators
from openmaia.config.loading import load
from openmaia.core.components import of_config
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, Generation
from openmaia.offline.scenes.graph import Scene

LEAST = ["name=x", "units=all", "target.name=t", "generator.kind=scenes", "editor.kind=scenes", "generator.size=96"]


def test_generator_draws_and_editor_edits():
    config = load(LEAST)
    [drawn] = generators.generator(config).generate([Generation(prompt="a red boat on the sea", seed=3)])
    assert drawn.image.pixels.shape == (96, 96, 3) and drawn.missing_terms == () and drawn.verified_by == "scenes"
    [edited] = generators.build_section(config, "editor").edit(
        [Edit(image=drawn.image, instruction="make the boat blue", seed=0)]
    )
    assert edited.missing_terms == () and edited.image.digest != drawn.image.digest
    [kept] = generators.build_section(config, "editor").edit(
        [Edit(image=drawn.image, instruction="make it glorious", seed=0)]
    )
    assert (kept.image.digest, kept.missing_terms) == (drawn.image.digest, ("make it glorious",))


def test_same_request_gives_the_same_image():
    request = Generation(prompt="three birds in the sky", seed=2**63)
    one, other = (generators.generator(load(LEAST)).generate([request])[0] for _ in range(2))
    assert (one.image.data, one.image.recipe) == (other.image.data, other.image.recipe)


def test_foreign_image_stays_as_it_is():
    image = EncodedImage.of(np.zeros((64, 64, 3), np.uint8), recipe="{}")
    [edited] = generators.build_section(load(LEAST), "editor").edit(
        [Edit(image=image, instruction="add a boat", seed=0)]
    )
    assert edited.image is image and edited.missing_terms == ("add a boat",)


def test_vocabulary_knows_what_can_be_drawn():
    vocabulary = generators.vocabulary(load(LEAST))
    assert vocabulary is not None and {"boat", "red", "dusk", "animal", "zigzag"} <= set(vocabulary.words)
    assert all(vocabulary.missing(word) == () for word in vocabulary.words)
    assert vocabulary.missing("a red zyzzyva") != ()


def test_words_that_are_left_out_are_not_known():
    config = load([*LEAST, "generator.without=[turtle,dusk]"])
    vocabulary = generators.vocabulary(config)
    assert vocabulary is not None and not {"turtle", "dusk"} & {*vocabulary.words} and "cat" in vocabulary.words
    assert vocabulary.missing("a cat and a turtle") == ("turtle",)
    [drawn] = generators.generator(config).generate([Generation(prompt="a cat and two turtles at sunset", seed=3)])
    assert drawn.missing_terms == ("turtles", "sunset", "two")
    assert [each.kind for each in Scene.loads(drawn.image.recipe).figures] == ["cat"]
    [edited] = generators.build_section(config, "editor").edit(
        [Edit(image=drawn.image, instruction="replace the cat by a turtle", seed=0)]
    )
    assert (edited.image.digest, edited.missing_terms) == (drawn.image.digest, ("turtle",))
    with pytest.raises(UsageError, match="zyzzyva"):
        load([*LEAST, "generator.without=[zyzzyva]"])


@pytest.mark.parametrize("size", [8, 31, 100_000])
def test_size_has_bounds(size: int):
    with pytest.raises(UsageError, match="32 to 1024"):
        load([*LEAST, f"generator.size={size}"])


def test_readers_of_results_are_told_that_scenes_are_drawn():
    config = load(LEAST)
    assert of_config(config.generator).remark(config.generator) == of_config(config.editor).remark(config.editor) != ""
