"""What a config names is looked at before Ray starts and models are loaded."""

from pathlib import Path

import pytest
import torch

from openmaia.assembly import targets
from openmaia.checks import named
from openmaia.checks.stages import require
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.config.sections import site
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.units import TargetInfo
from openmaia.models.targets.networks import load as load_network
from openmaia.models.targets.networks.skeleton import build_skeleton
from openmaia.models.targets.survey import layer_names, survey
from tests.conftest import REPOSITORY

DEMO = str(REPOSITORY / "configs/efficientnet-lite0.yaml")
SERVED = ["backbone.kind=openai", "backbone.model=m", "backbone.base_url=http://127.0.0.1:9/v1"]
SCIENCE = [
    "demo",
    "efficientnet-lite0",
    "bias",
    "closed-form",
    "synthetic",
    "resnet152",
    "clip_rn50",
    "dino_vits8",
    "spurious",
]


def look(config: Config) -> None:
    require(named.files(config), named.inputs(config))


def outline(config: Config) -> TargetInfo | None:
    return target_class(config.target).outline(config.target, site(config, "target"))


@pytest.mark.parametrize("name", SCIENCE)
def test_shipped_config_is_valid(name: str):
    look(load([str(REPOSITORY / f"configs/{name}.yaml")]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["target.layers=[_block.2]", "units=all"], "unknown layer '_block.2'.*did you mean '_blocks.2'"),
        (["target.layers=[_blocks]", "units=all"], "'_blocks' is not used in a forward pass"),
        (["target.layers=[]"], "target.layers is empty; .*_conv_head"),
        (["units=_conv_head=1280"], "has units 0 to 1279"),
        (["units=layer4=3"], "unknown layer 'layer4'"),
        (["units=_conv_head=random:9999"], "only 1280 units"),
        (["units=nowhere.json"], r"unit list nowhere\.json cannot be read"),
        (["target.layers=[output]", "units=output=pgi"], "no class 'pgi'; the nearest .* pig"),
        (["target.network=resnet1"], "the network 'resnet1' is not known; the nearest names are resnet"),
        (["target.network=timm:vit_tny"], "not known to timm; the nearest are .*vit"),
        (["target.network="], "a value is missing"),
        (["target.network=''"], "target.network is empty"),
        (["target.network=nowhere:f"], "target.network='nowhere:f' cannot be imported"),
        (["target.network=os:nothing"], "target.network='os:nothing'"),
        (["task.name=explain"], "task.name='explain' is neither a task"),
        (
            ["target.weights=/nowhere.pt"],
            "target.weights=/nowhere.pt does not exist",
        ),
        (["target.weights=/usr"], "target.weights=/usr is no file; give the path of a file"),
        (
            ["target.weights=/etc/passwd"],
            "target.weights='/etc/passwd' is of an unknown format.*Expected a file of safetensors or torch.save",
        ),
        (["paths.exemplars=/etc/passwd/x"], "paths.exemplars=/etc/passwd/x: /etc/passwd cannot be written"),
        (["paths.exemplars=/etc/passwd"], "paths.exemplars=/etc/passwd: /etc/passwd cannot be written"),
        (["paths.exemplars=ftp://a/b"], "ftp://a/b cannot be used for files .*; give a folder or an s3:// URL"),
        (["pictures.kind=folder", "pictures.folder=/nowhere"], "pictures.folder=/nowhere does not exist"),
        (["exemplars.folder=/nowhere"], "exemplars.folder=/nowhere does not exist"),
        (
            ["backbone.kind=replay", "backbone.record=/nowhere.json", "evaluate.judge.kind=detector"],
            "backbone.record=/nowhere.json does not exist",
        ),
        (["target.directions={_conv_head: /nowhere.safetensors}"], "target.directions._conv_head=/nowhere"),
        (["target.tokens=class"], "target.tokens=class: for the features of target.dictionaries, and none is given"),
        (["target.dictionaries={output: x/y}"], "target.dictionaries names output"),
        (["target.weights=untrained", "target.dictionaries={_conv_head: x/y}"], "target.dictionaries are those of the"),
        ([*SERVED, "tools=['nowhere:f']"], "'nowhere:f' cannot be imported"),
        ([*SERVED, "tools=['os:sep']"], "'os:sep' is no function"),
    ],
)
def test_wrong_value_is_named(given: list[str], said: str):
    with pytest.raises(UsageError, match=said):
        look(load([DEMO, *given]))


def test_table_without_labels_of_the_method_is_refused(tmp_path: Path):
    (tmp_path / "labels.csv").write_text("layer,unit,description\n_conv_head,66,a cat\n")
    given = [
        "backbone.kind=labels",
        f"backbone.record={tmp_path}/labels.csv",
        "backbone.model=guess",
        "evaluate.judge.kind=detector",
    ]
    with pytest.raises(
        UsageError, match=r"holds no labels by guess of efficientnet_lite0.*: MILAN of efficientnet_lite0"
    ):
        look(load([DEMO, *given]))


def test_synthetic_units_are_known_without_the_detector():
    own = ["target.mode=or", "target.labels=[cheese, lemon]"]
    with pytest.raises(UsageError, match="has units 0 to 0"):
        require(named.units(load([str(REPOSITORY / "configs/synthetic.yaml"), *own, "units=or=1"])))


def test_network_of_a_hub_is_not_known():
    config = load([DEMO, "target.network=hf:someone/some-model", "target.layers=[x]", "units=all"])
    assert outline(config) is None
    assert not list(named.units(config))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("resnet18", ("layer1", "layer4", "fc")),
        ("dino_vits8", ("blocks.1.mlp.fc1",)),
        ("ssdlite320_mobilenet_v3_large", ("backbone.features.0.1", "output")),
    ],
)
def test_skeleton_has_the_layers_of_the_network(name: str, layers: tuple[str, ...]):
    whole, bare = load_network(name, "untrained"), build_skeleton(name)
    assert bare is not None
    assert next(bare.module.parameters()).device == torch.device("meta")
    assert layer_names(bare) == layer_names(whole)
    assert survey(bare, layers) == survey(whole, layers)


def test_survey_names_layers_and_what_is_none():
    bare = build_skeleton("resnet18")
    assert bare is not None
    found = survey(bare)
    assert list(found.units)[:2] == ["conv1", "bn1"]
    assert (found.units["layer4"], found.units["fc"], found.units["output"]) == (512, 1000, 1000)
    assert "called 2 times" in found.unusable["layer1.0.relu"]


def test_units_of_the_closed_form_target_are_those_of_the_loaded_one():
    config = load([str(REPOSITORY / "configs/closed-form.yaml")])
    known = outline(config)
    assert known is not None and known.layers == targets.target(config).info().layers
