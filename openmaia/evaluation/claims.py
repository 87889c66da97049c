"""Claims: the descriptions that an evaluation tests."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from openmaia.core.components import component
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.runs.results import basis
from openmaia.runs.run import InvestigationId, Run

_AGENT = "agent"

Sharing = str
"""When claims are alike: if one label of both is the same (`label`), all labels are (`labels`), or they have a term in common,
according to the writer of this kind (`terms` of its class)."""

STOP_WORDS = frozenset(
    "a an the of on in with and or at to only its background pattern shape thing things object".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A description with its labels, and the method that made it.

    Raises:
        UsageError: The description or a label is not a string.
    """

    unit: Unit
    replicate: int = 0
    method: str = _AGENT
    """_AGENT or the name of a baseline."""
    description: str = ""
    labels: tuple[str, ...] = ()
    basis: str = field(default="", compare=False)
    """Digest of all that a test of the claim depends on (`openmaia.runs.results.basis`). Empty if the claim is not one
    of a run."""

    def __post_init__(self) -> None:
        for text in (self.description, *self.labels):
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(
                    f"{self.unit}, by {self.method}: {text!r} is a {type(text).__name__}; labels and descriptions are "
                    "texts, so put quotes around it where it comes from"
                )

    @property
    def is_abstention(self) -> bool:
        """Whether the description and all labels are blank."""
        return not any(text.strip() for text in (self.description, *self.labels))

    @property
    def statements(self) -> list[str]:
        """The labels that are not blank, or the description if all are."""
        return [label for label in self.labels if label.strip()] or [self.description]

    def keys(self, sharing: Sharing) -> frozenset[str]:
        """Returns texts of which one is also a key of every claim that is alike. Case, white space and punctuation of
        labels do not matter.

        Raises:
            UsageError: `sharing` is no kind of a writer.
        """
        if sharing not in ("label", "labels"):
            return frozenset[str]().union(*map(_terms(sharing), self.statements))
        labels = {" ".join(re.findall(r"\w+", text.casefold())) for text in self.statements}
        return frozenset(labels if sharing == "label" else ("\n".join(sorted(labels)),))

    def is_like(self, other: "Claim", sharing: Sharing) -> bool:
        """Returns whether two claims are alike."""
        return not self.keys(sharing).isdisjoint(other.keys(sharing))

    @property
    def text(self) -> str:
        """The description, or the labels on separate lines if it is empty."""
        return self.description or "\n".join(self.labels)

    @property
    def investigation(self) -> InvestigationId:
        """The investigation that made the claim."""
        return InvestigationId(unit=self.unit, replicate=self.replicate)


@cache
def _terms(writer: str) -> Callable[[str], frozenset[str]]:
    rules: Any = component("writer", writer, "evaluate.sharing")
    return rules.terms


def read_claims(run: Run) -> list[Claim]:
    """Reads the claims of all finished investigations of a run."""
    identity = cache(run.identity)  # or each record would read the config again
    return [_claim(row, identity()) for row in run.headers()]


def read_claim(run: Run, investigation: InvestigationId) -> Claim:
    """Reads the claim of a finished investigation. Raises UsageError if its record cannot be read."""
    row = run.summary(investigation)
    if row is None:
        raise UsageError(f"{investigation.unit} (replicate {investigation.replicate}) has no record to evaluate")
    return _claim(row, run.identity())


def _claim(row: dict[str, Any], identity: str) -> Claim:
    investigation = InvestigationId.of_row(row)
    return Claim(
        unit=investigation.unit,
        replicate=investigation.replicate,
        description=row["description"],
        labels=tuple(row["labels"]),
        basis=basis(row, identity),
    )


def following_units(unit: Unit, units: Iterable[Unit]) -> list[Unit]:
    """Returns the other units of the layer in cyclic order of their indices, starting after `unit`."""
    same = [each for each in units if (each.target, each.layer) == (unit.target, unit.layer) and each != unit]
    return sorted(same, key=lambda other: (other.index < unit.index, other.index))


def content_words(text: str) -> frozenset[str]:
    """Returns the words of a text in lower case, without STOP_WORDS and a final "s"."""
    words = re.findall(r"[a-z0-9-]+", text.casefold())
    return frozenset(word.removesuffix("s") for word in words if word not in STOP_WORDS)


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """Returns the size of the intersection over the size of the union; 0 if both sets are empty."""
    return len(first & second) / len(first | second) if first or second else 0.0
