"""Components of the user in a config: they are loaded, checked, pickled, identified and cached like built-in ones."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmaia.assembly import backbones, evaluation, generators, hosts
from openmaia.checks.server import components
from openmaia.config.loading import (
    defining_values,
    differing_keys,
    find_left_out,
    load,
    restore,
    stored_values,
    to_dict,
    to_yaml,
)
from openmaia.core.components import identity
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, user
from openmaia.core.services import Edit, Generation
from openmaia.evaluation.judging.judges import ModelJudge
from tests.conftest import REPOSITORY
from tests.helpers import own_components

LEAST = ["name=x", "units=all", "target.name=t"]
OWN = ["generator.kind=mymodels:Plain"]
ECHO = ["backbone.kind=mymodels:Echo"]
CHAT = Chat(conversation="t/a/0/0", messages=[user("there")], seed=0, max_tokens=9)
FLUX = "configs/models/flux-dev.yaml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own_components.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("mymodels", None)
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]


def said(*given: str) -> str:
    with pytest.raises(UsageError) as caught:
        load([*LEAST, *given])
    return caught.value.message


def test_own_components_draw_and_edit(folder: Path):
    config = load([*LEAST, *OWN, "generator.size=32", "generator.colour=blue", "editor.kind=mymodels:Darker"])
    [drawn] = generators.generator(config).generate([Generation(prompt="a", seed=0)])
    [edited] = generators.build_section(config, "editor").edit([Edit(image=drawn.image, instruction="b", seed=0)])
    assert drawn.image.pixels.shape == (32, 32, 3)
    assert (drawn.image.pixels[0, 0].tolist(), edited.image.pixels[0, 0].tolist()) == ([0, 0, 200], [0, 0, 100])
    assert generators.generator_name(config.generator) == "plain blue"


def test_own_component_makes_test_images(folder: Path):
    config = load([*LEAST, "evaluate.generator.kind=mymodels:Plain", "evaluate.generator.size=8"])
    [drawn] = generators.test_generator(config).generate([Generation(prompt="a", seed=0)])
    assert drawn.image.pixels.shape == (8, 8, 3)


def test_own_backbone_replies_and_writes_test_prompts(folder: Path):
    config = load([*LEAST, *ECHO, "backbone.greeting=hi"])
    [reply] = backbones.backbone(config).reply([CHAT])
    model = evaluation.language_model(config)
    assert reply.text == "hi, there"
    assert (backbones.backbone_name(config), hosts.concurrency("backbone", config)) == ("echo hi", 4)
    assert model is not None and model.name == "echo hi"
    assert isinstance(evaluation.judge(config, model), ModelJudge)


def test_own_backbone_is_a_writer_or_a_viewer(folder: Path):
    writer = load([*LEAST, "evaluate.writer.kind=mymodels:Echo"])
    assert getattr(evaluation.language_model(writer), "name", "") == "echo hello"
    viewed = load([*LEAST, *ECHO, "backbone.sees=text", "viewer.kind=mymodels:Echo", "viewer.greeting=seen"])
    shown = replace(CHAT, messages=[user("there", EncodedImage.of(np.zeros((8, 8, 3), np.uint8)))])
    assert [each.text for each in backbones.backbone(viewed).reply([CHAT, shown])] == ["hello, there", "seen, there"]
    assert backbones.backbone_name(viewed) == "echo hello, sees text of echo seen"


def test_own_judge_judges(folder: Path):
    config = load([*LEAST, "evaluate.judge.kind=mymodels:Bright", "evaluate.judge.least=50"])
    judge = evaluation.judge(config, None)
    images = [EncodedImage.of(np.full((4, 4, 3), value, np.uint8)) for value in (40, 60)]
    assert judge is not None and judge.name == "bright above 50"
    assert judge.judge(images, ["a", "b"]) == [(False, False), (True, True)]


def test_judge_without_a_section_is_that_of_the_backbone(folder: Path):
    assert evaluation.judge(load([*LEAST, "evaluate.judge.kind=none"]), None) is None
    assert getattr(evaluation.judge(load(LEAST), None), "name", "") == "eyes (efficientnet_lite2)"
    record = ["backbone.kind=replay", "backbone.record=r"]
    assert evaluation.judge(load([*LEAST, *record]), None) is None


def test_own_component_is_checked(folder: Path):
    assert said(*OWN, "generator.colour=green") == "generator.colour='green': give red or blue"
    assert "did you mean 'generator.colour'" in said(*OWN, "generator.color=red")
    assert "generator has paint" in [check.message for check in components(load([*LEAST, *OWN]))]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "generator.kind=fractal",
            "'fractal' is not known; expected collage, scenes, diffusers, openai, or package.module:Class",
        ),
        ("generator.kind=nowhere:X", "cannot be imported: ModuleNotFoundError"),
        ("generator.kind=mymodels:Nothing", "cannot be imported: AttributeError"),
        ("generator.kind=mymodels:Darker", "is no generator; let its Config inherit from .*GeneratorConfig"),
        ("generator.kind=collections:OrderedDict", "is no component; let the class inherit from .*Component"),
    ],
)
def test_unusable_kind_is_refused(folder: Path, given: str, message: str):
    with pytest.raises(UsageError, match=message):
        load([*LEAST, given])


def test_stored_config_is_read_without_importing_what_it_names(folder: Path):
    config = load([*LEAST, *OWN, "generator.colour=blue"])
    stored = to_dict(config)
    sys.modules.pop("mymodels")
    (folder / "mymodels.py").unlink()
    assert stored_values(stored, "a run") == stored
    assert differing_keys(stored, stored) == [] and defining_values(stored)["generator.colour"] == "blue"
    assert "mymodels" not in sys.modules
    with pytest.raises(UsageError, match="cannot be imported"):
        restore(stored, "a run")


def test_stored_config_is_restored_with_its_components(folder: Path):
    config = load([*LEAST, *OWN, "generator.colour=blue"])
    assert restore(to_dict(config), "a run").generator == config.generator
    assert restore(to_dict(config), "a run", ["generator.kind=collage"]).generator.kind == "collage"
    (folder / "stored.yaml").write_text(to_yaml(config))
    assert load(["stored.yaml"]).generator == config.generator


def test_machine_key_may_change_on_resume(folder: Path):
    one, other = (to_dict(load([*LEAST, *OWN, each])) for each in ("generator.fast=true", "generator.fast=false"))
    assert differing_keys(one, other) == []
    assert differing_keys(one, to_dict(load([*LEAST, *OWN, "generator.colour=blue"]))) == ["generator.colour"]
    assert differing_keys(one, to_dict(load(LEAST))) == ["generator.kind"]


def test_identity_has_what_images_depend_on(folder: Path):
    def of(*given: str) -> str | None:
        return identity(load([*LEAST, *given]).generator)

    assert of(*OWN) == of(*OWN, "generator.fast=true")
    assert len({of(), of(*OWN), of(*OWN, "generator.colour=blue"), of("generator.size=64")}) == 4
    before = of(*OWN)
    with (folder / "mymodels.py").open("a") as source:
        source.write("\n# changed\n")
    assert of(*OWN) != before
    assert identity(load([*LEAST, "generator.parts=pictures", "editor.parts=pictures"]).generator) is None


def test_config_is_unpickled_in_another_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "config.pickle").write_bytes(pickle.dumps(load([*LEAST, *OWN, "generator.colour=blue"])))
    code = "import pickle; print(pickle.load(open('config.pickle', 'rb')).generator.colour)"
    paths = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=elsewhere, env=paths, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "blue\n", done.stderr


# -- the order of sources --------------------------------------------------------------------------------------------------


def generator(*sources: str) -> Any:
    return load([*LEAST, *sources]).generator


def test_keys_of_a_replaced_kind_are_set_aside_and_said():
    assert generator(FLUX).model == "black-forest-labs/FLUX.1-dev"
    replaced = [FLUX, "generator.kind=collage"]
    assert vars(generator(*replaced)) == {"kind": "collage", "size": 512, "parts": "packages"}
    assert find_left_out([*LEAST, *replaced])["generator.steps"] == "generator.kind=collage"
    assert vars(generator(FLUX, "generator.kind=openai", "generator.model=m"))["model"] == "m"
    assert "leaves out generator.model" in said(
        FLUX, "generator.kind=openai"
    )  # the name of a model on the hub is none there


def test_file_for_a_replaced_kind_may_set_keys_of_the_machine(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("generator: {kind: collage}\npools: {generator: {cache_mb: 5}}")
    config = load([*LEAST, str(tmp_path / "a.yaml"), FLUX])
    assert (config.generator.kind, config.pools.generator.cache_mb) == ("diffusers", 5)
    back = load([*LEAST, str(tmp_path / "a.yaml"), FLUX, "generator.kind=collage"])
    assert (back.generator.kind, back.pools.generator.cache_mb) == ("collage", 5)


def test_config_without_sources_names_what_it_leaves_out():
    with pytest.raises(UsageError, match="leaves out name, target.name, units"):
        load([])


def test_overrides_beside_each_other_have_no_order():
    assert generator("generator.steps=7", "generator.kind=diffusers", "generator.model=a/b").steps == 7


def test_null_forgets_an_optional_section(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("evaluate: {generator: {kind: diffusers, model: a/b, steps: 3}}")
    (tmp_path / "b.yaml").write_text("evaluate: {generator: null}")
    files = [str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]
    assert load([*LEAST, files[0]]).evaluate.generator is not None
    assert load([*LEAST, *files]).evaluate.generator is None
    again = load([*LEAST, *files, "evaluate.generator.kind=diffusers", "evaluate.generator.model=c"]).evaluate.generator
    assert again is not None and vars(again)["steps"] == 0


def test_text_is_kept_as_it_is_written():
    assert generator("generator.kind=diffusers", "generator.model=010").model == "010"


def test_key_of_another_kind_is_refused_with_the_kind_that_has_it():
    assert "generator.kind=collage has no key 'steps'; generator.kind=diffusers has it" in said("generator.steps=3")
    assert "evaluate.generator needs evaluate.generator.kind" in said("evaluate.generator.size=3")


def test_machine_key_in_a_file_is_for_whom_it_may_concern(tmp_path: Path):
    (tmp_path / "machine.yaml").write_text("generator: {offload: true, concurrency: 9}")
    assert generator(str(tmp_path / "machine.yaml")).kind == "collage"
    assert generator(str(tmp_path / "machine.yaml"), FLUX).offload is True
    assert "has no key 'offload'" in said("generator.offload=true")
