import numpy as np
import pytest

from openmaia.core.images import EncodedImage, Pixels, darken_outside
from openmaia.core.messages import Chat, Message, Role
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import render, render_with_masks
from openmaia.offline.viewer.component import SceneViewer
from openmaia.offline.viewer.seeing import SceneEyes


@pytest.fixture(scope="module")
def eyes() -> SceneEyes:
    return SceneEyes()


def _drawn(prompt: str, size: int = 128, seed: int = 3) -> Pixels:
    scene, missing = read(prompt, seed)
    assert not missing
    return render(settle(scene), size)


@pytest.mark.parametrize("size", [96, 128, 224])
def test_kind_place_and_time_are_seen_in_images_of_any_size(eyes: SceneEyes, size: int):
    scene = eyes.see(_drawn("a red boat on the sea at dusk", size)).scene
    assert ([each.kind for each in scene.figures], scene.place, scene.time) == (["boat"], "sea", "dusk")


def test_sentence_is_read_by_the_grammar_and_shows_another_scene(eyes: SceneEyes):
    said = {
        eyes.see(_drawn(prompt)).sentence for prompt in ("a green cactus in the desert", "a grey elephant in a meadow")
    }
    assert len(said) == 2
    for sentence in said:
        scene, missing = read(sentence, 0)
        assert not missing
        assert len(scene.figures) == 1


def test_sentence_without_figures_names_the_place(eyes: SceneEyes):
    seen = eyes.see(_drawn("outer space"))
    assert seen.sentence == "outer space"
    assert seen.evidence["space"] > 0.9 > 0.1 > seen.evidence["meadow"]


def test_part_shows_the_figure_where_a_unit_responds(eyes: SceneEyes):
    scene, _ = read("a red car on the left and a yellow house on the right in a street", 3)
    scene = settle(scene)
    pixels, masks = render_with_masks(scene, 128)
    for figure, own, other in zip(scene.figures, ("car", "house"), ("house", "car"), strict=True):
        part = eyes.see_part(pixels, darken_outside(pixels, masks[figure.id]))
        assert own in part.sentence and other not in part.sentence


def test_viewer_describes_image_and_part():
    pixels = _drawn("a white duck on a blue background")
    lit = np.zeros(pixels.shape[:2], bool)
    lit[:20, :20] = True
    # A false recipe must not matter: the viewer sees pixels alone.
    recipe = settle(read("an elephant in the snow", 0)[0]).dumps()
    images = tuple(EncodedImage.of(each, recipe) for each in (pixels, darken_outside(pixels, lit)))
    question = Message(role=Role.USER, parts=("What is shown?", *images))
    (reply,) = SceneViewer().reply([Chat(conversation="", messages=(question,), seed=0, max_tokens=100)])
    assert reply.text == "a white duck on a blue background; where the unit responds: a blue background."
