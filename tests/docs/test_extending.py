"""docs/extending.md, followed: its files are written, its commands are run, and what it promises holds."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from openmaia.assembly import backbones, datasets, evaluation, exemplars, generators, targets
from openmaia.cli.main import app
from openmaia.config.loading import load
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, user
from openmaia.core.services import Edit, Generation, LayerProbe, Probe
from openmaia.core.units import Unit
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/extending.md").read_text()
LEAST = ["name=x", "units=all", "target.name=t"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, code in re.findall(r'```python title="(\w+\.py)"\n(.*?)```', PAGE, re.DOTALL):
        (tmp_path / name).write_text(code)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_page_is_followed(folder: Path):
    config = load([*LEAST, "generator.kind=mymodels:Noise", "generator.size=32", "editor.kind=myeditors:Mirror"])
    one, other, again = generators.generator(config).generate([Generation(prompt="a", seed=seed) for seed in (0, 1, 0)])
    assert one == again and one != other and one.image.pixels.shape == (32, 32, 3)
    [mirrored] = generators.editor(config).edit([Edit(image=one.image, instruction="a", seed=0)])
    assert np.array_equal(mirrored.image.pixels, one.image.pixels[:, ::-1])


def test_backbone_and_judge_of_the_page_answer(folder: Path):
    config = load([*LEAST, "backbone.kind=mybackbones:Pattern", "evaluate.judge.kind=myjudges:Bright"])
    chat = Chat(conversation="t/a/0/0", messages=[user("?")], seed=0, max_tokens=9)
    [reply] = backbones.backbone(config).reply([chat])
    assert reply.text == "[DESCRIPTION]: stripes\n[LABEL 1]: stripes"
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


def test_commands_of_the_page_run(folder: Path):
    commands = re.findall(r"^openmaia (config|doctor) (.*)$", PAGE, re.MULTILINE)
    assert [name for name, _ in commands] == ["config", "doctor"]
    shown, _ = (CliRunner().invoke(app, [name, *shlex.split(rest)]) for name, rest in commands)
    assert shown.exit_code == 0 and "contrast: 0.5" in shown.output, shown.output


def test_message_of_the_page_is_given(folder: Path):
    done = CliRunner().invoke(
        app, ["config", "configs/demo.yaml", "generator.kind=mymodels:Noise", "generator.contrast=3"]
    )
    message = re.search(r"^generator\.contrast=3\.0 is out of range.*$", PAGE, re.MULTILINE)
    assert message and str(done.exception) == message[0]
