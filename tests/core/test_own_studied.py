"""A target and pictures of the user: loaded, measured, with exemplars, in this process and in a pool."""

import sys
from pathlib import Path

import numpy as np
import pytest

from openmaia.assembly import datasets, exemplars, targets
from openmaia.checks.named import units
from openmaia.config.loading import load, stored_values, to_dict
from openmaia.config.sections import site
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import LayerProbe, Probe
from openmaia.core.units import Unit
from tests.helpers import own_studied
from tests.helpers.run_pools import target_pool

TARGET = ["name=x", "units=mean=0", "target.name=colours", "target.kind=mystudy:Colours"]
PICTURES = ["pictures.kind=mystudy:Noise", "exemplars.k=3"]
GREEN = EncodedImage.of(np.full((32, 32, 3), (10, 200, 30), np.uint8))
UNIT = Unit(target="colours", layer="mean", index=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own_studied.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("mystudy", None)
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]


def places(folder: Path) -> list[str]:
    return [f"paths.{key}={folder / key}" for key in ("runs", "exemplars", "cache")]


def test_own_target_is_measured(folder: Path):
    config = load([*TARGET, "target.scale=2"])
    target = targets.target(config)
    assert target.probe([Probe(unit=UNIT, image=GREEN)])[0].value == 400
    assert target.respond([LayerProbe(layer="mean", image=GREEN)])[0].tolist() == [20, 400, 60]
    assert dict(target_class(config.target).survey(config.target, site(config, "target"))[0]) == {"mean": 3}
    assert not list(units(config))


def test_own_kind_of_network_is_read_through_hooks(folder: Path):
    inputs = ["target.size=32", "target.mean=[0,0,0]", "target.std=[1,1,1]"]
    config = load(
        ["name=x", "units=0=1", "target.name=b", "target.kind=mystudy:Brightness", "target.layers=['0']", *inputs]
    )
    assert dict(target_class(config.target).survey(config.target, site(config, "target"))[0])["0"] == 3
    assert not list(units(config))
    unit = Unit(target="b", layer="0", index=1)
    assert targets.target(config).probe([Probe(unit=unit, image=GREEN)])[0].value == pytest.approx(200 / 255, abs=1e-4)


def test_own_target_and_pictures_give_exemplars(folder: Path):
    config = load([*TARGET, *PICTURES, *places(folder)])
    images = datasets.image_dataset(config)
    assert (images.root, len(images.items)) == ("noise of mine", 40)
    store = exemplars.make(config, ["mean"])
    found = store.read(UNIT).of_kind("top")
    expected = sorted(
        (each.load() for each in images.photos("explore")), key=lambda image: -np.asarray(image)[..., 1].mean()
    )
    assert [each.activation for each in found] == [
        round(float(np.asarray(each)[..., 1].mean()), 2) for each in expected[:3]
    ]
    with pytest.raises(UsageError, match="the keys or the code of the target changed"):
        exemplars.make(load([*TARGET, *PICTURES, *places(folder), "target.scale=2"]), ["mean"])


def test_own_pictures_are_read_again_when_they_change(folder: Path):
    few, more = (load([*TARGET, *PICTURES, *places(folder), f"pictures.count={count}"]) for count in (20, 30))
    assert [len(datasets.image_dataset(each).items) for each in (few, more, few)] == [20, 30, 20]


def test_stored_config_is_read_without_the_classes(folder: Path):
    stored = to_dict(load([*TARGET, *PICTURES]))
    sys.modules.pop("mystudy")
    (folder / "mystudy.py").unlink()
    assert stored_values(stored, "a run") == stored


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("target.kind=mystudy:Noise", "inherit from openmaia.core.components.TargetComponent"),
        ("pictures.kind=mystudy:Colours", "is no pictures; let its Config inherit from .*PicturesConfig"),
        ("target.scale=x", "target.scale"),
        ("pictures.kind=folder", "leaves out pictures.folder"),
        ("pictures.split=train", "pictures.kind=hf has it"),
        ("target.layers=[a]", "has no key 'layers'; target.kind=network or clip has it"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, given: str, message: str):
    with pytest.raises(UsageError, match=message):
        load([*TARGET, given])


@pytest.mark.slow
def test_own_target_answers_in_a_pool(folder: Path, ray_cluster: None):
    with target_pool(load([*TARGET, *PICTURES, *places(folder), "target.scale=2"])) as made:
        target = made.target("test")
        assert dict(target.info().layers) == {"mean": 3}
        assert target.probe([Probe(unit=UNIT, image=GREEN)])[0].value == 400
