"""docs/extending.md, followed: its files are written, its commands are run, and what it promises holds."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import backbones, datasets, evaluation, exemplars, generators, targets
from openmaia.cli.main import app
from openmaia.config.loading import load
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, assistant, user
from openmaia.core.services import Edit, Generation, LayerProbe, Probe
from openmaia.core.units import Unit
from tests.helpers import extending

LEAST = ["name=x", "units=all", "target.name=t"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    extending.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for file in tmp_path.glob("my*.py"):
        sys.modules.pop(file.stem, None)


def test_page_is_followed(folder: Path):
    config = load([*LEAST, "generator.kind=mymodels:Noise", "generator.size=32", "editor.kind=myeditors:Mirror"])
    one, other, again = generators.generator(config).generate([Generation(prompt="a", seed=seed) for seed in (0, 1, 0)])
    assert one == again and one != other and one.image.pixels.shape == (32, 32, 3)
    [mirrored] = generators.build_section(config, "editor").edit([Edit(image=one.image, instruction="a", seed=0)])
    assert np.array_equal(mirrored.image.pixels, one.image.pixels[:, ::-1])


def test_backbone_and_judge_of_the_page_answer(folder: Path):
    config = load([*LEAST, "backbone.kind=mybackbones:Pattern", "evaluate.judge.kind=myjudges:Bright"])
    chat = Chat(conversation="t/a/0/0", messages=[user("?")], seed=0, max_tokens=9)
    replies = backbones.backbone(config)
    [first] = replies.reply([chat])
    assert "a photo of dots" in first.text and "turn it around" in first.text
    later = replace(chat, messages=[user("?"), assistant(first.text)] * 2)
    assert replies.reply([later])[0].text == "[DESCRIPTION]: dots\n[LABEL 1]: dots"
    judge = evaluation.judge(config, None)
    white = EncodedImage.of(np.full((4, 4, 3), 255, np.uint8))
    assert judge is not None and judge.judge([white], ["bright", "dark"]) == [(True, None)]


def test_target_and_pictures_of_the_page_give_exemplars(folder: Path):
    for seed in range(24):
        cells = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        (folder / f"{seed}.png").write_bytes(EncodedImage.of(cells).data)
    (folder / "images.txt").write_text("\n".join(str(folder / f"{seed}.png") for seed in range(24)))
    studied = ["target.kind=mytargets:Colours", "pictures.kind=mypictures:Listed", "pictures.table=images.txt"]
    paths = [f"paths.{key}={folder / key}" for key in ("runs", "exemplars", "cache")]
    config = load(["name=x", "units=mean=1", "target.name=t", *studied, *paths, "exemplars.k=2"])
    target, images = targets.target(config), datasets.image_dataset(config)
    green = EncodedImage.of(np.full((4, 4, 3), (0, 255, 0), np.uint8))
    unit = Unit(target="t", layer="mean", index=1)
    assert target.probe([Probe(unit=unit, image=green)])[0].value == 1
    assert target.respond([LayerProbe(layer="mean", image=green)])[0].tolist() == [0, 1, 0]
    assert len(images.items) == 24 and images.root == "images.txt"
    assert len(exemplars.make(config, ["mean"], target=target, dataset=images).read(unit).of_kind("top")) == 2


def test_configs_of_all_commands_are_accepted(folder: Path):
    for command in extending.commands():
        load(list(takewhile(lambda each: each != "--unit", command[1:])))


@pytest.mark.parametrize("command", [each for each in extending.commands() if each[0] == "config"], ids=str)
def test_config_is_shown(folder: Path, command: list[str]):
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0 and command[-1].split("=")[-1] in shown.output, shown.output


def test_task_of_the_page_asks_its_question(folder: Path):
    task = load_task("texture")
    assert "which texture or material" in task.question(Unit(target="t", layer="a", index=0))
    assert "the texture in a few words" in task.answer.placeholders and not task.rule.demands


def test_message_of_the_page_is_given(folder: Path):
    done = CliRunner().invoke(
        app, ["config", "configs/demo.yaml", "generator.kind=mymodels:Noise", "generator.contrast=3"]
    )
    message = re.search(r"^generator\.contrast=3\.0 is out of range.*$", extending.PAGE, re.MULTILINE)
    assert message and str(done.exception) == message[0]
