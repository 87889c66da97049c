"""What the agent answered about each unit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
