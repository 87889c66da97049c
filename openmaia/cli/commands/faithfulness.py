"""The ablation of units, and the test of effects that answers name, by `openmaia evaluate --faithfulness`."""

from functools import partial
from typing import TYPE_CHECKING, cast

from openmaia.core.errors import UsageError

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.evaluation.services import EvaluationServices
    from openmaia.models.targets.hooked import NetworkTarget
    from openmaia.runs.run import Run


def check_network(run: "Run", settings: "Config") -> None:
    """Raises UsageError if the target of a run is no network. Units are ablated in its forward pass."""
    from openmaia.core.components import target_class

    if not target_class(settings.target).is_network:
        raise UsageError(
            f"{run.files.root} has target.kind={settings.target.kind}; --faithfulness ablates units in the forward pass "
            "of a network, so leave it out"
        )


def check_layers(run: "Run", services: "EvaluationServices") -> None:
    """Raises UsageError, before anything is tested, if no unit of a run can be ablated."""
    target = cast("NetworkTarget", services.target)  # check_network refuses others; it may be metered
    layers = sorted({investigation.unit.layer for investigation in run.plan()})
    if not set(target.effects().layers).intersection(layers):
        raise UsageError(
            f"{run.files.root}: --faithfulness ablates units of a classifier below its output, in modules whose output is one "
            f"tensor, and {', '.join(layers)} of {target.info().name} are none; leave it out"
        )


def ablate(run: "Run", settings: "Config", services: "EvaluationServices") -> None:
    """Ablates the units of a run, and stores and prints how this changes the target's class probabilities."""
    from openmaia.cli.terminal.effects import show_effects
    from openmaia.cli.terminal.faithfulness import show_faithfulness
    from openmaia.cli.terminal.output import Terminal
    from openmaia.evaluation.effects import measure_effects, write_effects
    from openmaia.evaluation.faithfulness import measure_faithfulness, write_faithfulness
    from openmaia.evaluation.steering import measure_steering, write_steering

    target = cast("NetworkTarget", services.target)  # check_network refuses other kinds; it may be metered
    with Terminal() as terminal:
        progress = partial(terminal.progress, "ablation")
        found = measure_faithfulness(run, target, settings.evaluate.bootstrap, progress)
        effects = measure_effects(run, target, settings.evaluate.bootstrap, partial(terminal.progress, "effects"))
        steering = measure_steering(run, target, partial(terminal.progress, "steering"))
    write_faithfulness(run, found)
    show_faithfulness(run)
    if steering is not None:
        write_steering(run, steering)
    if effects is not None:
        write_effects(run, effects)
        show_effects(run)
