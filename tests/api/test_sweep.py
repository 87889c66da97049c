"""`openmaia.sweep`: a run on Ray from Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import openmaia
from openmaia.assembly.models import Models
from openmaia.core.errors import UsageError
from openmaia.core.services import Generation, LayerProbe
from tests.helpers.mine import Redness
from tests.helpers.sweeping import ANSWER, replayed

GIVEN = {"mean": [0.5] * 3, "std": [0.25] * 3, "size": 32}


@pytest.mark.nightly
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


class Bright:
    """A test of a user: how strongly each unit responds to an image of its first label."""

    def is_done(self, run: openmaia.LoadedRun) -> bool:
        return run.run.files.exists("bright.json")

    def test(self, run: openmaia.LoadedRun, models: Models, progress: Callable[[int, int], None]) -> None:
        found = {}
        for row in run.units().itertuples():
            (made,) = models.test_generator.generate([Generation(prompt=str(row.labels[0]), seed=1, split="test")])
            (response,) = models.target.respond([LayerProbe(layer=str(row.layer), image=made.image)])
            found[str(row.index)] = float(response[int(row.index)])
            progress(len(found), len(run.units()))
        run.run.files.write("bright.json", json.dumps(found).encode())


@pytest.mark.slow
def test_sweep_takes_a_test_of_the_user(places: dict[str, Any], tmp_path: Path, ray_cluster: None):
    record = replayed(tmp_path / "history.json", [ANSWER])
    unasked: dict[str, Any] = {"task.evidence.experiments": 0, "task.evidence.labels": 0, "task.evidence.confirm": 0}

    def swept() -> openmaia.LoadedRun:
        return openmaia.sweep(
            "tests.helpers.mine:redness", "maps=0,2", preprocess=GIVEN, pictures={"limit": 40},
            backbone={"kind": "replay", "record": str(record)}, ray={"investigations": 2},
            name="bright", test=Bright(), **places, **unasked,
        )  # fmt: skip

    run = swept()
    assert not run.was_complete and run.scores().empty
    stored = json.loads(run.run.files.read("bright.json") or b"")
    assert set(stored) == {"0", "2"} and stored["0"] > stored["2"], "both are shown red"
    assert swept().was_complete
    models = openmaia.load_models(run)
    assert models.target.info().layers == {"maps": 3}
    assert models.language_model is None
    with pytest.raises(UsageError, match="give the config instead"):
        openmaia.load_models(run, seed=1)
