"""Synthetic units of one's own, and the published layout of label folders."""

import json
from pathlib import Path

import numpy as np
import pytest

from openmaia.assembly import targets
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.images import whole
from openmaia.core.services import Exemplar, Probe, UnitExemplars
from openmaia.core.units import Unit
from openmaia.interop.synthetic import write
from openmaia.models.targets.synthetic.units import read_units
from tests.conftest import REPOSITORY
from tests.helpers.samples import noise
from tests.helpers.tiny import detection
from tests.helpers.tiny.detection import pictures

SYNTHETIC = str(REPOSITORY / "configs/synthetic.yaml")


def known(index: int, activations: tuple[float, ...]) -> UnitExemplars:
    """Exemplars in another order than their ranks."""
    top = [
        Exemplar(kind="top", rank=rank, activation=value, image=image, box=whole(image.pixels), map=None)
        for rank, value in enumerate(activations)
        for image in [noise(10 * index + rank)]
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


def test_label_folders_are_read_as_written(tmp_path: Path):
    write(tmp_path, "or", CONCEPTS, [known(0, (0.9, 0.5)), known(1, (0.7,))])
    assert read_units("or", [], str(tmp_path)) == {"or": tuple(sorted(CONCEPTS))}, "_ joins, blanks do not"
    assert read_units("andnot", ["grass", "dog"], "") == {"andnot": (("grass", "dog"),)}
    first, second = json.loads((tmp_path / "labels" / "or.json").read_text())
    assert first == {"label": "cheese_lemon", "image_names": ["00.png", "01.png"], "activations": [0.9, 0.5]}
    assert second["image_names"] == ["00.png"]
    assert (tmp_path / "car window_dog" / "00.png").is_file()


def test_earlier_label_folders_are_replaced(tmp_path: Path):
    write(tmp_path, "or", CONCEPTS[:1], [known(0, (0.9, 0.5))])
    write(tmp_path, "or", CONCEPTS[:1], [known(0, (0.9,))])
    assert [path.name for path in (tmp_path / "cheese_lemon").iterdir()] == ["00.png"]
    assert len(json.loads((tmp_path / "labels" / "or.json").read_text())[0]["image_names"]) == 1


@pytest.mark.parametrize("concept", ["../up", "a/b", "a_b"])
def test_concept_outside_the_folder_is_refused(tmp_path: Path, concept: str):
    with pytest.raises(ValueError, match="no folder name"):
        write(tmp_path, "mono", [(concept,)], [known(0, (0.9,))])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("mode", "labels", "said"),
    [
        ("xor", ["a", "b"], "mode='xor' is not known"),
        ("or", ["cheese"], "has 1 concepts; a unit of 'or' has 2"),
        ("or", ["cheese", "cheese"], "has 1 concepts"),
        ("andnot", ["cheese"], "a unit of 'andnot' has 2"),
        ("mono", ["cheese", "lemon"], "a unit of 'mono' has 1"),
        ("or", ["../etc", "lemon"], "is no concept"),
        ("or", ["car_window", "lemon"], "is no concept"),
        ("or", [], "give either labels"),
    ],
)
def test_bad_units_name_the_config_key(mode: str, labels: list[str], said: str):
    with pytest.raises(UsageError, match=said):
        read_units(mode, labels, "")


def test_folder_without_label_folders_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no folders with images"):
        read_units("or", [], str(tmp_path))
    with pytest.raises(UsageError, match="is no folder"):
        read_units("or", [], str(tmp_path / "none"))


def test_other_target_kinds_have_no_synthetic_units():
    with pytest.raises(UsageError, match=r"target\.kind=synthetic has it"):
        load([str(REPOSITORY / "configs/efficientnet-lite0.yaml"), "target.mode=or"])


def test_configured_unit_has_its_mode(tmp_path: Path):
    model = detection.grounding_dino(tmp_path / "detector")
    named = [SYNTHETIC, f"target.detector={model}", "target.segmenter=''", "target.labels=[dog, cup]"]
    either = targets.target(load([*named, "target.mode=or"]))
    both = targets.target(load([*named, "target.mode=and"]))
    assert (either.info().layers, both.info().layers) == ({"or": 1}, {"and": 1})
    assert either.info().digest != both.info().digest
    published = targets.target(load(named[:3]))
    assert published.info().digest != either.info().digest
    unit = Unit(target="synthetic", layer="or", index=0)
    assert all(0 <= a.value <= 1 for a in either.probe([Probe(unit=unit, image=p) for p in pictures(2)]))
