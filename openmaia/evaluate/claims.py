"""What is evaluated: a statement about a unit, whoever made it."""

from dataclasses import dataclass

from openmaia.errors import UsageError
from openmaia.store.run import Run
from openmaia.units import Unit

AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """method: who says so, AGENT or the name of a baseline. labels: empty for an abstention, unless there is a
    description. Raises UsageError for labels that are no texts."""

    unit: Unit
    replicate: int = 0
    method: str = AGENT
    description: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for text in (self.description, *self.labels):
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(
                    f"{self.unit}, by {self.method}: {text!r} is a {type(text).__name__}; labels and descriptions are "
                    "texts, so put quotes around it where it comes from"
                )

    @property
    def is_abstention(self) -> bool:
        return not any(text.strip() for text in (self.description, *self.labels))

    @property
    def key(self) -> tuple[Unit, int, str]:
        return self.unit, self.replicate, self.method


def claims(run: Run) -> list[Claim]:
    """Of all finished investigations."""
    return [
        Claim(
            unit=Unit(target=row["target"], layer=row["layer"], index=row["index"]),
            replicate=row["replicate"],
            description=row["description"],
            labels=tuple(row["labels"]),
        )
        for row in run.headers()
    ]
