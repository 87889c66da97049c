"""Units over scene graphs: true by meaning, where their figures are, repeatable, and for drawn scenes only."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from openmaia.assembly import datasets, exemplars
from openmaia.config.loading import load
from openmaia.core.components import Site, build, target_class
from openmaia.core.errors import ToolError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, Generation, LayerProbe, Probe
from openmaia.core.units import Unit
from openmaia.distributed.pools.dispatch.cache import pack, unpack
from openmaia.evaluation.controls import load_photographs
from openmaia.offline.scene_units import family
from openmaia.offline.scene_units.family import half_of, layers, truths
from openmaia.offline.scene_units.matching import relation
from openmaia.offline.scene_units.target import SceneUnitTarget
from openmaia.offline.scene_units.terms import Phrase
from openmaia.offline.scene_units.unit import Mode, SceneUnit
from openmaia.offline.scenes.album import sample
from openmaia.offline.scenes.component import SceneEditor, SceneEditorConfig
from openmaia.offline.scenes.drawing import draw
from openmaia.offline.scenes.grammar import Reader
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import masks, render
from openmaia.offline.scenes.truth import GROUND, holds, locate

MODES = [mode for mode in get_args(Mode) if mode != "outside"]


def target(*units: SceneUnit) -> SceneUnitTarget:
    return SceneUnitTarget("t", {"l": units})


def unit(*texts: str, mode: Mode = "one", noise: float = 0.0) -> SceneUnit:
    return SceneUnit(mode=mode, terms=tuple(Phrase(text=each, sort="", words=()) for each in texts), noise=noise)


def respond(made: SceneUnitTarget, image: EncodedImage) -> list[float]:
    return made.respond([LayerProbe(layer="l", image=image)])[0].tolist()


def drawn(prompt: str, seed: int = 0) -> EncodedImage:
    made = draw(Generation(prompt=prompt, seed=seed), 98)
    assert not made.missing_terms
    return made.image


def pictured(scene: Scene) -> EncodedImage:
    return EncodedImage.of(render(scene, 64), recipe=scene.dumps())


def visible(scene: Scene) -> Scene:
    seen = masks(scene, 112)
    return replace(scene, figures=tuple(each for each in scene.figures if each.id in seen and seen[each.id].any()))


def is_true(mode: str, scene: Scene, texts: Sequence[str]) -> bool:
    shown = [holds(scene, each) is True for each in texts]
    match mode:
        case "or":
            return any(shown)
        case "andnot":
            return shown[0] and not shown[1]
        case _:
            return all(shown)


def test_units_respond_to_what_scenes_show_and_to_nothing_else():
    both = [layers(half, 20, 7, 0.0) for half in ("tuning", "held_out")]
    units = [each for half in both for mode in MODES for each in half[mode]]
    assert len(units) == 200
    made, active = target(*units), 0
    for seed in range(30):
        scene = settle(sample(f"truth {seed}", 0.3))
        found = np.array(respond(made, pictured(scene))) > 0
        seen = visible(scene)
        assert found.tolist() == [is_true(each.mode, seen, [t.text for t in each.terms]) for each in units]
        active += found.sum()
    assert 100 < active < 3000


def test_a_map_is_where_the_figures_are():
    image = drawn("a red boat and a white bird on the sea")
    shown = masks(Scene.loads(image.recipe), 98)
    boat = next(each.id for each in Scene.loads(image.recipe).figures if each.kind == "boat")
    [answer] = target(unit("red boat")).probe([Probe(unit=Unit(target="t", layer="l", index=0), image=image)])
    assert answer.map is not None and answer.value > 0
    wide = np.kron(answer.map > 0, np.ones((7, 7), bool))
    assert wide[shown[boat]].mean() > 0.95 and wide.mean() < shown[boat].mean() + 0.25


def test_what_is_no_figure_is_the_ground():
    scene = Scene.loads(drawn("two cats in the forest at night").recipe)
    cats = {each.id for each in scene.figures}
    assert locate(scene, "cat") == locate(scene, "two cats") == locate(scene, "cat at night") == cats
    assert locate(scene, "forest") == locate(scene, "tree") == {GROUND}
    assert locate(scene, "night") == {GROUND, *cats}
    assert locate(scene, "three cats") == locate(scene, "boat") == set()


def test_activations_are_graded():
    one, three = drawn("a cat in a meadow"), drawn("three cats in a meadow")
    assert respond(target(replace(unit("cat"), grade="number")), one) < respond(
        target(replace(unit("cat"), grade="number")), three
    )
    small, huge = drawn("a tiny boat"), drawn("a huge boat")
    assert respond(target(unit("boat")), small) < respond(target(unit("boat")), huge)


def test_an_edit_changes_what_it_says():
    editor = SceneEditor(SceneEditorConfig(kind="scenes"))
    made = target(
        unit("boat"), unit("red boat"), unit("bird"), unit("night"), unit("boat", "bird", mode="and"),
        unit("bird", "boat", mode="andnot"), unit("boat", "night", mode="or"),
    )  # fmt: skip

    def after(instruction: str) -> list[bool]:
        [edited] = editor.edit(
            [Edit(image=replace(image, sources=("of a data set",)), instruction=instruction, seed=0)]
        )
        assert not edited.missing_terms and edited.image.sources == ("of a data set",)
        return [each > 0 for each in respond(made, edited.image)]

    image = drawn("a red boat and a bird on the sea")
    assert [each > 0 for each in respond(made, image)] == [True, True, True, False, True, False, True]
    assert after("remove the boat") == [False, False, True, False, False, True, False]
    assert after("make the boat blue") == [True, False, True, False, True, False, True]
    assert after("at night") == [True, True, True, True, True, False, True]


def test_noise_depends_on_unit_and_image_only():
    image, other = drawn("a boat", 1), drawn("a boat", 2)
    one, again = (target(unit("boat", noise=0.05), unit("cat", noise=0.05)) for _ in range(2))
    assert respond(one, image) == respond(again, image)
    assert respond(one, image)[1] != respond(one, other)[1]
    [answer] = one.probe([Probe(unit=Unit(target="t", layer="l", index=1), image=image)])
    assert answer.value == respond(one, image)[1]
    clean = target(unit("boat"), unit("cat"))
    assert np.abs(np.subtract(respond(one, image), respond(clean, image))).max() < 0.8


@pytest.mark.parametrize("recipe", ["", "{}", "[1]", '{"format": "scene-1"}'])
def test_images_without_a_scene_are_refused(recipe: str):
    image = EncodedImage.of(np.zeros((64, 64, 3), np.uint8), recipe=recipe)
    made = target(unit("boat"))
    with pytest.raises(ToolError, match="drawn scenes"):
        made.probe([Probe(unit=Unit(target="t", layer="l", index=0), image=image)])
    with pytest.raises(UsageError, match="pictures.kind=scenes"):
        respond(made, image)
    with pytest.raises(UsageError, match="pictures.kind=scenes"):
        made.responses([image.pixels], [recipe])


def test_halves_share_no_truth_and_some_words_are_held_out():
    for seed, mode in product(range(2), get_args(Mode)):
        one, other = (layers(half, 50, seed, 0.0)[mode] for half in ("tuning", "held_out"))
        assert len(one) >= 5 and len(other) >= 5
        assert not {each.truth for each in one} & {each.truth for each in other}
    words = [{w for mode in MODES for t in truths(mode) if half_of(mode, t) == half for each in t for w in each.words}
             for half in ("tuning", "held_out")]  # fmt: skip
    assert len(words[1] - words[0]) >= 15
    assert layers("tuning", 9, 0, 0.0) != layers("tuning", 9, 1, 0.0)
    assert layers("tuning", 9, 0, 0.0) == layers("tuning", 9, 0, 0.0)


def test_units_of_words_that_are_left_out_are_outside():
    made = layers("held_out", 300, 0, 0.0, ["turtle", "dusk"])
    assert {("turtle",), ("dusk",)} <= {each.truth for each in made["outside"]}
    inside = {word for mode in MODES for each in made[mode] for term in each.terms for word in term.words}
    assert "cat" in inside and not {"turtle", "dusk"} & inside


@pytest.mark.parametrize(
    ("label", "slot", "expected"),
    [
        ("a red boat", "red boat", "same"),
        ("boats", "boat", "same"),
        ("ship at sunset", "boat at dusk", "same"),
        ("animal", "cat", "wider"),
        ("cat", "black cat", "wider"),
        ("black cat", "animal", "narrower"),
        ("cat", "two cats", "wider"),
        ("striped", "vertical stripes", "wider"),
        ("a dotted pattern", "dots", "same"),
        ("a dotted background", "dots", "narrower"),
        ("boat at dusk", "boat without dusk", "other"),
        ("boat", "boat without dusk", "wider"),
        ("boat without an animal", "boat without cat", "narrower"),
        ("dog", "cat", "other"),
        ("a zyzzyva", "cat", "other"),
        ("cat", "x of the largest object in an even one of 8 bands", "other"),
    ],
)
def test_labels_are_compared_by_meaning(label: str, slot: str, expected: str):
    assert relation(label, slot) == expected


def test_all_words_of_truths_are_understood():
    phrases = {each.text for mode in ("one", "pair") for terms in truths(mode) for each in terms}
    assert len(phrases) > 500
    assert {each for each in phrases if Reader(each, 0, is_question=True).missing} == set()


def test_wordless_terms_do_not_depend_on_what_is_drawn():
    terms = [terms[0] for terms in truths("outside") if terms[0].sort != "number"]
    scenes = [settle(sample(f"wordless {seed}", 0.25)) for seed in range(300)]
    rates = [np.mean([bool(each.locate(scene)) for scene in scenes]) for each in terms]
    assert min(rates) > 0.3 and max(rates) < 0.7
    assert all(holds(scenes[0], each.text) is None for each in terms)


def test_recipes_reach_target_and_editor_on_every_way(tmp_path: Path):
    config = load(
        [
            "name=x", "units=all", "target.kind=scene_units", "target.name=t", "target.count=2", "pictures.kind=scenes",
            "pictures.count=40", "pictures.size=64", "exemplars.k=3", "generator.kind=scenes", "editor.kind=scenes",
            f"paths.exemplars={tmp_path}/exemplars", f"paths.cache={tmp_path}/cache",
        ]
    )  # fmt: skip
    store = exemplars.make(config, ["one", "outside"])
    made = build(config.target, Site(key="target"))
    for layer in ("one", "outside"):
        asked = Unit(target="t", layer=layer, index=1)
        shown = store.read(asked).exemplars
        answers = made.probe([Probe(unit=asked, image=each.image) for each in shown])
        assert [each.value for each in answers] == [each.activation for each in shown]
    [edited] = SceneEditor(SceneEditorConfig(kind="scenes")).edit(
        [Edit(image=shown[0].image, instruction="add a penguin", seed=0)]
    )
    assert not edited.missing_terms and edited.image.sources == shown[0].image.sources
    assert "penguin" in {each.kind for each in Scene.loads(edited.image.recipe).figures}
    cached = unpack("key", pack("key", edited))
    assert cached is not None and cached.image.recipe == edited.image.recipe
    photographs = load_photographs(datasets.image_dataset(config), 3, 64)
    assert all(np.isfinite(made.respond([LayerProbe(layer="one", image=each)])[0]).all() for each in photographs)


def test_truths_of_a_config_are_those_of_its_target():
    config = load(["name=x", "units=all", "target.kind=scene_units", "target.name=t", "target.half=held_out"])
    info = target_class(config.target).outline(config.target, Site(key="target"))
    assert info is not None
    found = target_class(config.target).truths(config.target, info)
    assert len(found) == sum(info.layers.values()) > 120
    assert {len(found[each]) for each in found if each.layer == "or"} == {2}
    assert family.layers("held_out", 24, 0, 0.03)["and"][0].truth == found[Unit(target="t", layer="and", index=0)]
