"""What the agent is asked about, with which pictures, and what it answered."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from openmaia.errors import UsageError
from openmaia.schema import Config, SpuriousConfig, TaskConfig
from openmaia.store.run import Owed, Run
from openmaia.units import Unit

SELECTIVE, SPURIOUS = "SELECTIVE", "SPURIOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Indices of units. undecided: ended without one of the two answers; failed: something of ours did. Neither is guessed,
    and neither is kept."""

    selective: tuple[int, ...]
    spurious: tuple[int, ...]
    undecided: tuple[int, ...]
    failed: tuple[int, ...]

    def as_dict(self) -> dict[str, list[int]]:
        return {name: list(units) for name, units in asdict(self).items()}

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Verdicts":
        return cls(**{name: tuple(units) for name, units in values.items()})


def verdicts(run: Run, target: str, layer: str, units: Sequence[int]) -> Verdicts:
    found: dict[str, list[int]] = {SELECTIVE: [], SPURIOUS: [], "undecided": [], "failed": []}
    for index in units:
        summary = run.summary(Owed(unit=Unit(target=target, layer=layer, index=index), replicate=0))
        labels = list(summary["labels"]) if summary else []
        answer = labels[0] if labels and labels[0] in (SELECTIVE, SPURIOUS) else "undecided"
        found["failed" if summary is None else answer].append(index)
    return Verdicts(
        selective=tuple(found[SELECTIVE]),
        spurious=tuple(found[SPURIOUS]),
        undecided=tuple(found["undecided"]),
        failed=tuple(found["failed"]),
    )


def judging(config: Config, seed: int, checkpoint: Path, shown: Path, dataset: str, units: Sequence[int]) -> Config:
    """The config of the agent's run: one investigation per unit, exemplars from the folder `shown` and nowhere else. dataset:
    names the exemplars."""
    one = with_weights(config, checkpoint)
    return replace(
        one,
        name="judging",
        units=f"{config.target.layers[0]}={','.join(map(str, units))}",
        task=TaskConfig(name="spurious"),
        exemplars=replace(config.exemplars, folder=str(shown), dataset=dataset),
        paths=replace(config.paths, runs=f"{config.paths.runs}/{config.name}/seed-{seed}"),
        spurious=SpuriousConfig(),  # how rows are scored is no part of what the agent does
    )


def with_weights(config: Config, checkpoint: Path) -> Config:
    """Raises UsageError where several layers are named."""
    if len(config.target.layers) != 1:
        raise UsageError(
            f"target.layers={list(config.target.layers)}: give the one layer whose units the last linear layer is given, such as "
            "layer4 of resnet18"
        )
    return replace(config, target=replace(config.target, weights=str(checkpoint)))
