"""Units are ranked by how strongly they respond to a picture."""

import dataclasses

import numpy as np
import pytest

from openmaia.analysis.responding import rank_units
from openmaia.assembly import targets
from openmaia.config.loading import restore
from openmaia.core.services import Probe, UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.stores import find_exemplars
from openmaia.runs.run import Run
from tests.helpers.living import LAYER, UNITS, living

__all__ = ["living"]


@pytest.fixture
def store(living: Run) -> ExemplarStore:
    found = find_exemplars(living).store
    assert found is not None
    return found


@pytest.fixture
def known(store: ExemplarStore) -> dict[Unit, UnitExemplars]:
    return {
        unit: found for layer in (LAYER, "output") for unit, found in store.statistics(UNITS[0].target, layer).items()
    }


def test_statistics_of_a_layer_are_those_of_its_units(store: ExemplarStore, known: dict[Unit, UnitExemplars]):
    for unit in UNITS:
        one, read = known[unit], store.read(unit)
        assert one.exemplars == () and read.counts is not None and one.counts is not None
        assert (one.mean, one.std, one.threshold, one.state) == (read.mean, read.std, read.threshold, read.state)
        assert one.counts.images.tolist() == read.counts.images.tolist()
    assert store.statistics("net", "no such layer") == {}


def test_strongest_image_of_a_unit_ranks_it_by_its_own_dataset(
    living: Run, store: ExemplarStore, known: dict[Unit, UnitExemplars]
):
    target = targets.target(restore(living.config(), living.name))
    unit = UNITS[2]
    image = store.read(unit).of_kind("top")[0].image
    ranked = rank_units(target, image, known)
    assert {each.unit for each in ranked} == {unit for unit, one in known.items() if one.state == "ok"}
    assert [each.percent for each in ranked] == sorted((each.percent for each in ranked), reverse=True)
    own = next(each for each in ranked if each.unit == unit)
    assert own.percent == known[unit].percent_below(own.activation) and own.percent > 95
    measured = target.probe([Probe(unit=each.unit, image=image) for each in ranked])
    assert [each.activation for each in ranked] == pytest.approx([one.value for one in measured], rel=1e-6)


def test_units_above_all_images_are_ranked_by_standard_deviations(
    living: Run, store: ExemplarStore, known: dict[Unit, UnitExemplars]
):
    target = targets.target(restore(living.config(), living.name))
    image = store.read(UNITS[0]).of_kind("top")[0].image
    low = {unit: dataclasses.replace(known[unit], counts=None, maxima=np.full(101, -1e9)) for unit in UNITS[:6]}
    ranked = rank_units(target, image, low)
    assert {each.percent for each in ranked} == {100.0}
    scores = [each.z for each in ranked]
    assert None not in scores and scores == sorted(scores, key=lambda z: -(z or 0)) and len(set(scores)) > 1


def test_units_without_a_distribution_are_left_out(living: Run, known: dict[Unit, UnitExemplars], store: ExemplarStore):
    target = targets.target(restore(living.config(), living.name))
    image = store.read(UNITS[0]).of_kind("top")[0].image
    given = {
        UNITS[0]: known[UNITS[0]],
        UNITS[1]: dataclasses.replace(known[UNITS[1]], counts=None, maxima=None),
        UNITS[2]: dataclasses.replace(known[UNITS[2]], state="dead"),
    }
    assert [each.unit for each in rank_units(target, image, given)] == [UNITS[0]]
