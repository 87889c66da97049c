"""`system.effect` and `system.drives`, on a classifier each of whose units raises one class."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from openmaia.agent.context import InvestigationContext
from openmaia.agent.conversation import Conversation
from openmaia.agent.evidence.stopping import Stopping
from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools import api, values
from openmaia.agent.tools.api_text import api_text
from openmaia.agent.tools.effects import checked_effects, class_changes
from openmaia.agent.tools.toolbox import Toolbox
from openmaia.assembly import investigations
from openmaia.config.loading import load
from openmaia.core.errors import ToolError, UsageError
from openmaia.core.services import Effects, Services, UnitExemplars
from openmaia.core.units import OUTPUT, Scope, Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import TargetNetwork
from tests.conftest import REPOSITORY
from tests.helpers.dissecting import dissect
from tests.helpers.planted_edges import PREPROCESS, PlantedEdges, colour_fields, network

UNIT = Unit(target="t", layer="units", index=7)
DATASET = colour_fields(40)
CLASS = f"c{int(PlantedEdges().edges[7])}"


class Stored:
    def __init__(self, exemplars: UnitExemplars):
        self.exemplars = exemplars

    def read(self, unit: Unit) -> UnitExemplars:
        return replace(self.exemplars, unit=unit)


@pytest.fixture(scope="module")
def target() -> NetworkTarget:
    return NetworkTarget("t", network(), ["units", OUTPUT])


@pytest.fixture(scope="module")
def exemplars(target: NetworkTarget) -> UnitExemplars:
    return dissect(target, DATASET, [UNIT], k=8, quantile=0.9)[0]


@pytest.fixture
def context(target: NetworkTarget, exemplars: UnitExemplars) -> InvestigationContext:
    nothing: Any = None
    services = Services(target=target, exemplars=Stored(exemplars), generator=nothing, editor=nothing, backbone=nothing)
    options = investigations.options(load([str(REPOSITORY / "configs/closed-form.yaml")]))
    return InvestigationContext(
        unit=UNIT,
        services=services,
        task=load_task("description"),
        options=replace(
            options,
            images_per_call=20,
            effects=replace(target.effects(), drives={"units": target.attribute("units", DATASET)}),
        ),
        run_seed=0,
    )


def system(context: InvestigationContext) -> api.System:
    toolbox = Toolbox(context)
    return api.build(lambda name, *args: toolbox.call(name, args)[0], {"tools": {}, "scope": "unit"})["system"]


PICTURES = [each.pil() for each in colour_fields(6, seed=1)]


def test_ablation_lowers_the_class_that_the_unit_raises(context: InvestigationContext):
    found = system(context).effect(PICTURES)
    assert len(found) == 10
    assert found[0][0] == CLASS
    assert found[0][1] < 0
    assert [abs(change) for _, change in found] == sorted((abs(change) for _, change in found), reverse=True)


def test_effect_is_the_difference_of_logits_from_the_average_class(context: InvestigationContext):
    module = PlantedEdges().eval()
    batch = network().preprocess.batch([np.asarray(each) for each in PICTURES], torch.device("cpu"))
    with torch.no_grad():
        before, kept = module(batch).mean(0), module.colours.weight[7].clone()
        module.colours.weight[7] = 0
        after = module(batch).mean(0)
        module.colours.weight[7] = kept
    change = after - before
    expected = float((change - change.mean())[int(CLASS[1:])])
    assert system(context).effect(PICTURES)[0][1] == pytest.approx(expected, rel=1e-3)


def test_unit_is_raised_set_and_set_to_its_mean(context: InvestigationContext, exemplars: UnitExemplars):
    asked = system(context)
    assert asked.effect(PICTURES, add=3)[0][0] == CLASS
    assert asked.effect(PICTURES, add=3)[0][1] > 0
    assert exemplars.positions is not None
    mean = exemplars.positions.mean
    assert asked.effect(PICTURES, set="mean") == asked.effect(PICTURES, set=np.float64(mean))
    assert asked.effect(PICTURES, set="mean") != asked.effect(PICTURES, set=0.0) == asked.effect(PICTURES)


def test_drives_names_what_the_unit_raises_on_the_dataset(context: InvestigationContext):
    found = system(context).drives()
    assert len(found) == 10
    assert found[0][0] == CLASS
    assert [rise for _, rise in found] == sorted((rise for _, rise in found if rise > 0), reverse=True)


def test_drives_says_why_it_has_no_answer(context: InvestigationContext):
    effects = context.options.effects
    assert effects is not None
    known = effects.drives["units"]
    for rises, message in (
        (known.rises * 0, "changes no class on 40 images"),
        (known.rises * np.nan, "not finite"),
        (None, "unknown what units of units raise"),
    ):
        drives = {} if rises is None else {"units": replace(known, rises=rises)}
        options = replace(context.options, effects=replace(effects, drives=drives))
        with pytest.raises(ToolError, match=message):
            system(replace(context, options=options)).drives()


def test_each_head_has_its_own_average():
    reader = NetworkTarget("t", network(heads=(10, 30)), ["units"])
    effects = reader.effects()
    assert effects.heads == (10, 30)
    changes = class_changes(reader, effects, UNIT, colour_fields(2), 0.0, 0.0)
    assert changes[:10].sum() == pytest.approx(0, abs=1e-9)
    assert changes[10:].sum() == pytest.approx(0, abs=1e-9)
    assert np.abs(changes).max() > 0.01


def test_changes_of_classes_that_do_not_exclude_each_other_are_not_compared():
    made = TargetNetwork(module=PlantedEdges().eval(), preprocess=PREPROCESS, output=OutputMeaning.SIGMOID)
    reader, compared = NetworkTarget("t", made, ["units"]), NetworkTarget("t", network(), ["units"])
    images = colour_fields(2)
    changes = class_changes(reader, reader.effects(), UNIT, images, 0.0, 0.0)
    assert abs(changes.mean()) > 1e-3
    assert changes - changes.mean() == pytest.approx(
        class_changes(compared, compared.effects(), UNIT, images, 0.0, 0.0), abs=1e-6
    )


@pytest.mark.parametrize(
    ("count", "value", "added", "message"),
    [
        (1, "median", None, "set='median'; expected a number or \"mean\""),
        (1, "", None, "set=''"),
        (1, float("nan"), None, "set=nan; expected a number"),
        (1, True, None, "set=True"),
        (1, [0.0], None, r"set=\[0.0\]"),
        (1, b"mean", None, "set=b'mean'"),
        (1, None, float("inf"), "add=inf; expected a number of at most 1000000"),
        (1, None, 10**400, "add=1000"),
        (1, None, "mean", "add='mean'"),
        (1, 0, 1, "give either set or add"),
        (0, None, None, "an empty list"),
        (21, None, None, "21 images in one call; at most 20"),
    ],
)
def test_bad_arguments_are_refused(context: InvestigationContext, count: int, value: Any, added: Any, message: str):
    images = [values.wire(PICTURES[0])] * count
    with pytest.raises(ToolError, match=message):
        Toolbox(context).call("effect", [images, value, added])


@pytest.mark.parametrize("arguments", [[], [[], None], [[], None, None, "units", 0, 0], [None, None, None]])
def test_other_calls_are_refused(context: InvestigationContext, arguments: list[Any]):
    with pytest.raises(ToolError):
        Toolbox(context).call("effect", arguments)


def test_statistics_that_are_unknown_are_said(context: InvestigationContext, exemplars: UnitExemplars):
    imported = replace(exemplars, positions=None, mean=None)
    services = replace(context.services, exemplars=Stored(imported))
    asked = system(replace(context, services=services))
    with pytest.raises(ToolError, match="the mean of this unit over the dataset is unknown"):
        asked.effect(PICTURES, set="mean")


def prompt(context: InvestigationContext) -> str:
    stopping = Stopping(Scope.UNIT, context.task, context.options, [])
    return str(Conversation(context, [], stopping).opening[0].parts[0])


def test_effects_are_in_the_prompt_only_where_they_can_be_measured(context: InvestigationContext):
    assert "system.effect(images" in prompt(context)
    assert "system.drives()" in prompt(context)
    without = replace(context, options=replace(context.options, effects=None))
    output = replace(context, unit=replace(UNIT, layer=OUTPUT))
    for each in (without, output):
        assert not re.search("effect|drives", prompt(each))
        with pytest.raises(ToolError, match="there is no tool 'effect'"):
            system(each).effect(PICTURES)
    assert "effect" not in api_text({})


def test_targets_without_classes_are_refused_at_once():
    with pytest.raises(UsageError, match=r"task.effects=true: target.kind=closed_form is no network"):
        load([str(REPOSITORY / "configs/closed-form.yaml"), "task.effects=true"])
    with pytest.raises(UsageError, match="units of output cannot be changed.*those of units can"):
        checked_effects(Effects(layers=("units",), classes=("a",)), [OUTPUT])
    with pytest.raises(UsageError, match="no layer of the target can; if its outputs are classes"):
        checked_effects(Effects(layers=(), classes=()), ["units"])
