"""Configures the run in which an agent judges whether units are selective or spurious, and reads its answers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from openmaia.config.schema import Config
from openmaia.config.studies import SpuriousConfig
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.runs.files import joined
from openmaia.runs.run import InvestigationId, Run

_SELECTIVE, _SPURIOUS = "SELECTIVE", "SPURIOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVerdicts:
    """The indices of the units by the agent's verdict."""

    selective: tuple[int, ...]
    spurious: tuple[int, ...]
    undecided: tuple[int, ...]
    """The agent gave neither answer."""
    failed: tuple[int, ...]

    def as_dict(self) -> dict[str, list[int]]:
        """Returns one list for each verdict, for JSON."""
        return {name: list(units) for name, units in asdict(self).items()}


def read_verdicts(run: Run, target: str, layer: str, units: Sequence[int]) -> UnitVerdicts:
    """Reads the agent's answers about the units of a layer. A unit without a record counts as failed."""
    by_answer: dict[str, list[int]] = {_SELECTIVE: [], _SPURIOUS: [], "undecided": [], "failed": []}
    for index in units:
        summary = run.summary(InvestigationId(unit=Unit(target=target, layer=layer, index=index), replicate=0))
        labels = list(summary["labels"]) if summary else []
        answer = labels[0] if labels and labels[0] in (_SELECTIVE, _SPURIOUS) else "undecided"
        by_answer["failed" if summary is None else answer].append(index)
    return UnitVerdicts(**{name.lower(): tuple(indices) for name, indices in by_answer.items()})


def configure_judging(
    config: Config, seed: int, checkpoint: Path, images: Path, dataset: str, units: Sequence[int]
) -> Config:
    """Returns the config of a run with one investigation of each unit.

    Args:
        seed: The seed of the classifier.
        checkpoint: The weights of the classifier.
        images: The folder of the images from which exemplars are computed.
        dataset: The name under which they are stored.
    """
    return replace(
        replace_weights(config, checkpoint),
        name="judging",
        units=f"{target_class(config.target).layers(config.target)[0]}={','.join(map(str, units))}",
        task=replace(config.task, name="spurious"),
        exemplars=replace(config.exemplars, folder=str(images), dataset=dataset),
        paths=replace(config.paths, runs=joined(config.paths.runs, f"{config.name}/seed-{seed}")),
        spurious=SpuriousConfig(),  # the agent does not depend on how rows are scored
    )


def replace_weights(config: Config, checkpoint: Path) -> Config:
    """Returns a copy of the config with the weights of a checkpoint.

    Raises:
        UsageError: The target is no network, or the config does not name exactly one layer of it.
    """
    found = target_class(config.target)
    if not found.is_network:
        raise UsageError(
            f"target.kind={config.target.kind} has no weights to fine-tune; give a classifier as target.network"
        )
    if len(layers := found.layers(config.target)) != 1:
        raise UsageError(
            f"target.layers={list(layers)}: give the one layer whose units the last linear layer is given, such as "
            "layer4 of resnet18"
        )
    return replace(config, target=replace(cast(Any, config.target), weights=str(checkpoint)))
