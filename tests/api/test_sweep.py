"""`openmaia.sweep`: a run on Ray from Python."""

from pathlib import Path
from typing import Any

import pytest

import openmaia
from openmaia.core.errors import UsageError
from tests.helpers.mine import Redness

GIVEN = {"mean": [0.5] * 3, "std": [0.25] * 3, "size": 32}


@pytest.mark.slow
def test_sweep_describes_units_of_a_module_by_its_name(places: dict[str, Any], ray_cluster: None):
    run = openmaia.sweep(
        "tests.helpers.mine:redness",
        "maps=0,2",
        preprocess=GIVEN,
        pictures={"limit": 40},
        ray={"investigations": 2},
        **places,
    )
    assert run.failures() == {}
    units = run.units().set_index("index")
    assert [units.labels[index][0] for index in (0, 2)] == ["red", "blue"]
    assert (units.auc > 0.8).all()
    assert run.record("maps=2").preprocessing.startswith("central 100 % of the shorter side, scaled to 32 x 32")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": Redness()}, r"tests.helpers.mine.Redness. A sweep runs in other processes.*model='mine:network'"),
        ({"images": [Path("a.png")]}, "images is a list.*give a folder"),
        ({"preprocess": lambda image: image}, "preprocess is a function.*a mapping with mean, std and size"),
        ({"backbone": object()}, "backbone is a object.*openai:MODEL@URL"),
    ],
)
def test_objects_of_this_process_are_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        openmaia.sweep(**({"model": "resnet18", "units": "layer4=0"} | arguments))
