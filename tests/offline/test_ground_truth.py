"""The scripted experimenter on units whose truth is known."""

from pathlib import Path

import pytest

from openmaia.agent.loop import investigate
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import investigations, targets
from openmaia.assembly.exemplars import make
from openmaia.config.loading import load
from openmaia.core.selection import select
from openmaia.offline import experimenter
from openmaia.offline.closed_form.family import UNITS
from openmaia.offline.vocabulary.words import find
from tests.conftest import REPOSITORY

FEW = ["pictures.limit=150", "exemplars.k=8", "exemplars.dataset=few"]


def matches(settings: list[str], chosen: str, *overrides: str) -> int:
    """Counts the units whose labels name exactly the concepts of the truth."""
    config = load([str(REPOSITORY / "configs/closed-form.yaml"), *settings, *FEW, f"units={chosen}", *overrides])
    units = select(config.units, targets.target(config).info()).units
    services = investigations.services(config, make(config, [unit.layer for unit in units]))
    count = 0
    for unit in units:
        record = investigate(unit, load_task("description"), services, investigations.options(config))
        named = {word.name for label in record.labels for word in find(label)}
        count += named == {name for slot in UNITS[unit.layer][unit.index].truth for name in slot}
    return count


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["and=0", pytest.param("mono=0", marks=pytest.mark.nightly)])
def test_labels_match_the_truth(settings: list[str], chosen: str):
    assert matches(settings, chosen) == 1


@pytest.mark.nightly
@pytest.mark.slow
def test_class_gets_its_exact_name(settings: list[str]):
    overrides = ["target.layers=[output]", "units=output=lion,toucan", "pictures.limit=150", "exemplars.dataset=few"]
    config = load([str(REPOSITORY / "configs/efficientnet-lite0.yaml"), *settings, *overrides])
    units = select(config.units, targets.target(config).info()).units
    services = investigations.services(config, make(config, ["output"]))
    records = [investigate(unit, load_task("description"), services, investigations.options(config)) for unit in units]
    assert [record.labels for record in records] == [("lion",), ("toucan",)]


def test_experimenter_cannot_import_the_truth():
    folder = Path(experimenter.__file__).parent
    assert not [path for path in folder.rglob("*.py") if "closed_form" in path.read_text()]
