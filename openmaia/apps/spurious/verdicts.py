"""Configures the run in which an agent judges whether units are selective or spurious, and reads its answers.

SELECTIVE: the unit responds to the object of one class itself. SPURIOUS: it responds to something that only tends to
come along with a class, such as a place, or to several classes.
"""

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

SELECTIVE, SPURIOUS = "SELECTIVE", "SPURIOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVerdicts:
    """The indices of the units that the agent judged, grouped by its verdict.

    A selective unit responds to the object of one class itself. A spurious unit responds to something that only tends
    to accompany a class, such as a place. The study fits a new linear layer to the selective units only.
    """

    selective: tuple[int, ...]
    spurious: tuple[int, ...]
    undecided: tuple[int, ...]
    """Units for which the agent gave neither answer."""
    failed: tuple[int, ...]
    """Units whose investigation failed."""

    def as_dict(self) -> dict[str, list[int]]:
        """Returns the unit indices as a dict with one list for each verdict, which can be written as JSON."""
        return {name: list(units) for name, units in asdict(self).items()}


def verdicts(run: Run, target: str, layer: str, units: Sequence[int]) -> UnitVerdicts:
    """Reads from a run whether the agent judged the units of a layer as selective or as spurious.

    A selective unit responds to the object of one class itself. A spurious unit responds to something that only tends
    to accompany a class, such as a place, or to several classes. A unit without a record of an investigation counts as
    failed.
    """
    by_answer: dict[str, list[int]] = {SELECTIVE: [], SPURIOUS: [], "undecided": [], "failed": []}
    for index in units:
        summary = run.summary(InvestigationId(unit=Unit(target=target, layer=layer, index=index), replicate=0))
        labels = list(summary["labels"]) if summary else []
        answer = labels[0] if labels and labels[0] in (SELECTIVE, SPURIOUS) else "undecided"
        by_answer["failed" if summary is None else answer].append(index)
    return UnitVerdicts(**{name.lower(): tuple(indices) for name, indices in by_answer.items()})


def judging(config: Config, seed: int, checkpoint: Path, images: Path, dataset: str, units: Sequence[int]) -> Config:
    """Returns the config of a run in which an agent judges for each unit whether it is selective or spurious.

    A selective unit responds to the object of one class itself, a spurious one to something that only tends to
    accompany a class. Each unit has one investigation.

    Args:
        config: The config of the study.
        seed: The seed of the classifier.
        checkpoint: The weights of the classifier.
        images: The folder of the images from which exemplars (those with high activations) are computed.
        dataset: The name under which the exemplars are stored.
        units: The indices of the units to judge.
    """
    return replace(
        with_weights(config, checkpoint),
        name="judging",
        units=f"{target_class(config.target).layers(config.target)[0]}={','.join(map(str, units))}",
        task=replace(config.task, name="spurious"),
        exemplars=replace(config.exemplars, folder=str(images), dataset=dataset),
        paths=replace(config.paths, runs=joined(config.paths.runs, f"{config.name}/seed-{seed}")),
        spurious=SpuriousConfig(),  # the agent does not depend on how rows are scored
    )


def with_weights(config: Config, checkpoint: Path) -> Config:
    """Returns a copy of the config in which the target network has the weights of a checkpoint.

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
