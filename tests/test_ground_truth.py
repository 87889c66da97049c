"""The scripted experimenter on units whose truth is known, and on the same units with their answers shuffled."""

from pathlib import Path

import pytest

from openmaia import build, exemplars
from openmaia.agent import investigate
from openmaia.config import load
from openmaia.pictures.vocabulary import find
from openmaia.targets.closed_form import layers
from openmaia.tasks.task import load as load_task
from openmaia.units import select
from tests.conftest import REPOSITORY

SMALL = layers("small")


def matches(settings: list[str], *overrides: str) -> int:
    """Units whose labels name exactly the concepts of the truth."""
    config = load([str(REPOSITORY / "configs/closed-form.yaml"), *settings, *overrides])
    units = select(config.units, build.target(config).info()).units
    services = build.services(config, exemplars.make(config, [unit.layer for unit in units]))
    found = 0
    for unit in units:
        record = investigate(unit, load_task("description"), services, build.options(config))
        named = {word.name for label in record.labels for word in find(label)}
        found += named == {name for slot in SMALL[unit.layer][unit.index].truth for name in slot}
    return found


@pytest.mark.slow
def test_labels_match_the_truth_of_closed_form_units(settings: list[str]):
    assert sum(len(units) for units in SMALL.values()) == 12
    assert matches(settings) >= 9


@pytest.mark.slow
def test_shuffled_answers_leave_it_at_chance(settings: list[str]):
    # A label drawn blindly from 61 words fits a truth of one word once in 61: of 6 units more than one hit would happen
    # by chance in fewer than 1 of 200 runs.
    half = "units=mono=0,1,2:or=0,1:and=0"
    assert matches(settings, half, "target.shuffled=true", "exemplars.dataset=shuffled") <= 1


def test_truth_never_reaches_the_experimenter():
    folder = Path(build.__file__).parent / "backbones"
    assert not [path for path in folder.rglob("*.py") if "closed_form" in path.read_text()]
