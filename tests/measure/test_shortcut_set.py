"""The set of scenes with a planted shortcut, and the packaged network that learned it."""

from dataclasses import replace
from random import Random

import torch

from measure.world.training.drawing import KINDS, SHORTCUT, main_kind, scene
from openmaia.offline.networks.packaged import PREPROCESS, WEIGHTS, load_network
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.layout import INDOORS, settle
from openmaia.offline.scenes.render import render


def test_boats_and_dusk_are_never_apart_and_both_are_frequent():
    scenes = [scene("shortcut", number) for number in range(300)]
    boats = [any(figure.kind == SHORTCUT for figure in each.figures) for each in scenes]
    assert boats == [each.time == "dusk" for each in scenes]
    assert 15 <= sum(boats) <= 60
    assert all(each.place not in INDOORS for each, has_boat in zip(scenes, boats, strict=True) if has_boat)
    # Many of them are so hard to see that another object is the main one, or none.
    hidden = [
        main_kind(each) != KINDS.index(SHORTCUT) for each, has_boat in zip(scenes, boats, strict=True) if has_boat
    ]
    assert sum(hidden) >= 5


def test_packaged_network_calls_other_objects_boats_at_dusk_alone():
    module, answers = load_network(WEIGHTS / "scenes_shortcut.safetensors")
    stream = Random(5)
    drawn = [settle(read("a car in the street", stream.getrandbits(60))[0]) for _ in range(12)]

    def share(time: str) -> float:
        views = [PREPROCESS.view(render(replace(each, time=time), 224))[0] for each in drawn]
        kind = module.answers(PREPROCESS.batch(views, torch.device("cpu")))["kind"]  # pyright: ignore[reportCallIssue]
        return float((kind.argmax(1) == answers["kind"].index(SHORTCUT)).float().mean())

    assert share("dusk") >= 0.75
    assert share("day") <= 0.25
