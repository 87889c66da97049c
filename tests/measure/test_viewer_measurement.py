from dataclasses import replace

from measure.world.eyes.evaluate import compare
from measure.world.eyes.scenes import draw
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.layout import settle


def test_sentence_counts_as_right_only_if_nothing_is_false_or_left_out():
    scene = settle(read("a red boat and two white ducks on the sea at dusk", 1)[0])
    _, visible = draw(scene, 128)
    said = replace(scene, figures=tuple(sorted(scene.figures, key=lambda each: each.kind)))
    assert compare(scene, visible, said)["sentence"]
    fewer = replace(said, figures=said.figures[:-1])
    assert not compare(scene, visible, fewer)["nothing left out"]
    other = replace(said, figures=(replace(said.figures[0], kind="car"), *said.figures[1:]))
    right = compare(scene, visible, other)
    assert not right["nothing false"] and not right["kind"]
    assert not compare(scene, visible, replace(said, time="night"))["sentence"]
