"""A small finished run whose network, exemplars and generator are real: drawn scenes, and no investigation by Ray."""

from pathlib import Path

import pytest

from openmaia.assembly import exemplars, targets
from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.runs.records import Stop
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.reporting.making import record

LAYER = "stage4"
UNITS = tuple(
    Unit(target="scenes_resnet", layer=layer, index=index) for layer in (LAYER, "output") for index in range(6)
)
ABSTAINED = UNITS[5]


@pytest.fixture(scope="session")
def living(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Twelve units of two layers, one of which the agent could not describe."""
    folder: Path = tmp_path_factory.mktemp("living")
    config = load(
        [
            str(REPOSITORY / "configs/demo.yaml"),
            f"units={LAYER}=0-5:output=0-5",
            f"target.layers=[{LAYER},output]",
            "pictures.count=60",
            "exemplars.k=4",
            f"paths.runs={folder}/runs",
            f"paths.exemplars={folder}/exemplars",
        ]
    )
    exemplars.make(config, [LAYER, "output"], target=targets.target(config))
    made = Run.create(config)
    made.set_plan(UNITS, 1)
    for unit in UNITS:
        stop = Stop.ABSTAIN if unit == ABSTAINED else Stop.ANSWER
        made.publish(record(unit, config, text=f"<b>what</b> {unit.index}", stop=stop))
    return made
