"""Synthetic units of one's own, and the published layout of label folders."""

import json
from pathlib import Path

import numpy as np
import pytest

from openmaia import build
from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.interchange.synthetic import label_folders, read, write
from openmaia.services import Exemplar, Probe, UnitExemplars
from openmaia.targets.synthetic.units import own
from openmaia.units import Unit
from tests.conftest import REPOSITORY
from tests.samples import noise
from tests.tiny import detection
from tests.tiny.detection import pictures

SYNTHETIC = str(REPOSITORY / "configs/synthetic.yaml")


def known(index: int, activations: tuple[float, ...]) -> UnitExemplars:
    """Exemplars in another order than their ranks."""
    top = [
        Exemplar(kind="top", rank=rank, activation=value, picture=noise(10 * index + rank), map=None)
        for rank, value in enumerate(activations)
    ]
    return UnitExemplars(
        unit=Unit(target="mine", layer="or", index=index),
        threshold=0.0,
        maxima=np.zeros(101),
        mean=0.0,
        std=1.0,
        exemplars=tuple(reversed(top)),
    )


CONCEPTS = (("cheese", "lemon"), ("car window", "dog"))


def test_label_folders_are_read_back_as_they_were_written(tmp_path: Path):
    write(tmp_path, "or", CONCEPTS, [known(0, (0.9, 0.5)), known(1, (0.7,))])
    assert sorted(label_folders(tmp_path)) == sorted(CONCEPTS), "a blank belongs to a name, _ joins two"
    first, second = read(tmp_path / "labels" / "or.json")
    assert (first.label, first.concepts, first.activations) == ("cheese_lemon", CONCEPTS[0], (0.9, 0.5))
    assert (second.index, second.image_names) == (1, ("00.png",))
    assert (tmp_path / "car window_dog" / "00.png").is_file()


def test_what_an_earlier_time_left_is_replaced(tmp_path: Path):
    write(tmp_path, "or", CONCEPTS[:1], [known(0, (0.9, 0.5))])
    write(tmp_path, "or", CONCEPTS[:1], [known(0, (0.9,))])
    assert [path.name for path in (tmp_path / "cheese_lemon").iterdir()] == ["00.png"]
    assert len(json.loads((tmp_path / "labels" / "or.json").read_text())[0]["image_names"]) == 1


@pytest.mark.parametrize("concept", ["../up", "a/b", "a_b"])
def test_a_name_that_leads_out_of_the_folder_is_never_written(tmp_path: Path, concept: str):
    with pytest.raises(ValueError, match="no folder's name"):
        write(tmp_path, "mono", [(concept,)], [known(0, (0.9,))])
    assert not list(tmp_path.iterdir())


def test_units_come_from_the_folders_of_the_published_layout(tmp_path: Path):
    write(tmp_path, "or", CONCEPTS, [known(0, (0.9,)), known(1, (0.7,))])
    assert own("or", [], str(tmp_path)) == {"or": (("car window", "dog"), ("cheese", "lemon"))}


@pytest.mark.parametrize(
    ("mode", "labels", "said"),
    [
        ("xor", ["a", "b"], "mode='xor' is not known"),
        ("or", ["cheese"], "has 1 concepts; a unit of 'or' has 2"),
        ("or", ["cheese", "cheese"], "has 1 concepts"),
        ("mono", ["cheese", "lemon"], "a unit of 'mono' has 1"),
        ("or", ["../etc", "lemon"], "is no concept"),
        ("or", ["car_window", "lemon"], "is no concept"),
        ("or", [], "give either labels"),
    ],
)
def test_units_that_cannot_be_are_refused_with_the_key(mode: str, labels: list[str], said: str):
    with pytest.raises(UsageError, match=said):
        own(mode, labels, "")


def test_a_folder_without_label_folders_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no folders with pictures"):
        own("or", [], str(tmp_path))
    with pytest.raises(UsageError, match="is no folder"):
        own("or", [], str(tmp_path / "none"))


def test_another_kind_of_target_has_no_synthetic_units():
    with pytest.raises(UsageError, match=r"set target\.kind=synthetic"):
        load([str(REPOSITORY / "configs/demo.yaml"), "target.synthetic.mode=or"])


def test_the_configured_unit_answers_by_the_formula_of_its_mode(tmp_path: Path):
    model = detection.grounding_dino(tmp_path / "detector")
    named = [SYNTHETIC, f"target.detector={model}", "target.segmenter=''", "target.synthetic.labels=[dog, cup]"]
    either = build.target(load([*named, "target.synthetic.mode=or"]))
    both = build.target(load([*named, "target.synthetic.mode=and"]))
    assert (either.info().layers, both.info().layers) == ({"or": 1}, {"and": 1})
    assert either.info().digest != both.info().digest
    published = build.target(load(named[:3]))
    assert published.info().digest != either.info().digest
    unit = Unit(target="synthetic", layer="or", index=0)
    assert all(0 <= a.value <= 1 for a in either.probe([Probe(unit=unit, picture=p) for p in pictures(2)]))
