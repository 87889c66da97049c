"""Units that matter for a prediction are those whose ablation lowers the logit of the class."""

from itertools import pairwise

import numpy as np
import pytest

from openmaia.analysis.reasons import find_reasons
from openmaia.analysis.responding import PictureResponse, rank_units
from openmaia.assembly import targets
from openmaia.config.loading import restore
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import LOGITS, Intervention
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.reporting.browser.stores import find_exemplars
from openmaia.runs.run import Run
from tests.helpers.living import LAYER, UNITS, living

__all__ = ["living"]


@pytest.fixture(scope="module")
def asked(living: Run) -> tuple[NetworkTarget, EncodedImage, list[PictureResponse]]:
    store = find_exemplars(living).store
    assert store is not None
    target = targets.target(restore(living.config(), living.name))
    assert isinstance(target, NetworkTarget)
    image = store.read(UNITS[2]).of_kind("top")[0].image
    known = store.statistics(UNITS[0].target, LAYER) | store.statistics(UNITS[0].target, "output")
    return target, image, rank_units(target, image, {unit: known[unit] for unit in UNITS})


def test_effects_are_falls_of_the_logit(asked: tuple[NetworkTarget, EncodedImage, list[PictureResponse]]):
    target, image, active = asked
    found = find_reasons(target, image, active)
    effects = target.effects()
    at, heads = effects.classes.index(found.predicted), np.cumsum([0, *effects.heads])
    head = next(slice(low, high) for low, high in pairwise(heads) if low <= at < high)
    assert found.units and all(each.response.unit.layer == LAYER for each in found.units)
    assert found.unchangeable == ("output",) and found.ablated == 6
    for each in found.units:
        plain, without = target.intervene(
            [Intervention(unit=each.response.unit, image=image, scale=scale, read=LOGITS) for scale in (1.0, 0.0)]
        )
        falls = plain - without
        assert each.effect == pytest.approx(falls[at] - falls[head].mean(), rel=1e-3, abs=1e-4)
    assert [each.effect for each in found.units] == sorted((each.effect for each in found.units), reverse=True)
    (outputs,) = target.intervene([Intervention(unit=found.units[0].response.unit, image=image, scale=1.0)])
    own = np.exp(outputs)[head]
    assert found.probability == pytest.approx(own.max() / own.sum()), "of the classes of one question, not of all"


def test_another_class_can_be_asked_about(asked: tuple[NetworkTarget, EncodedImage, list[PictureResponse]]):
    target, image, active = asked
    name = next(each for each in target.effects().classes if each != find_reasons(target, image, active).predicted)
    assert find_reasons(target, image, active, name.upper()).predicted == name
    with pytest.raises(UsageError, match="'zebr' is no class of the network; near that name"):
        find_reasons(target, image, active, "zebr")


def test_units_that_cannot_be_ablated_are_refused(asked: tuple[NetworkTarget, EncodedImage, list[PictureResponse]]):
    target, image, active = asked
    with pytest.raises(UsageError, match=r"units of output of scenes_resnet"):
        find_reasons(target, image, [each for each in active if each.unit.layer == "output"])
