"""What an answer rests on: how the investigation stands against its stopping rule, and the test that follows the answer.

Neither is the agent's word: both are read off recorded calls, or measured by the loop itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, cast

import numpy as np

from openmaia.images import Picture
from openmaia.services import Spent


class State(StrEnum):
    """How one demand of a stopping rule stands."""

    MET = "met"
    MISSING = "missing"
    UNVERIFIED = "unverified"
    """No call says which hypothesis it tests, or the answer does not say which ones survive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A demand of the rule. found: of what was wanted, for the hypothesis that has least of it. detail: for people."""

    what: str
    wanted: int
    found: int
    state: State
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A hypothesis that survives, as calls have named it. images, controls: different pictures measured for it, and as
    negative controls of it. mean, control_mean: their activations, None without any."""

    hypothesis: str
    images: int
    controls: int
    mean: float | None
    control_mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """checks: empty where no rule was required. sent_back: answers that were refused for want of evidence."""

    checks: tuple[Check, ...] = ()
    tested: tuple[Tested, ...] = ()
    sent_back: int = 0

    @property
    def state(self) -> str:
        """The worst state of any demand; "" without a rule."""
        states = {check.state for check in self.checks}
        return next((s.value for s in (State.MISSING, State.UNVERIFIED, State.MET) if s in states), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """An image of the test that follows the answer. near_miss: what the image shows in place of the label, "" for an image
    of the label itself. control: how the near miss was found. digest: leads into Confirmation.pictures. percentile: of
    dataset pictures that excite the unit less."""

    label: str
    prompt: str
    near_miss: str = ""
    control: str = ""
    seed: int
    digest: str
    activation: float
    percentile: float
    undrawn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The loop's own test of the final labels: pictures that no experiment has seen, each beside a near miss of it."""

    shots: tuple[Shot, ...]
    spent: dict[str, Spent] = field(default_factory=dict[str, Spent])
    pictures: dict[str, Picture] = field(default_factory=dict[str, Picture])

    def of(self, label: str | None = None) -> tuple[list[float], list[float]]:
        """Activations of a label's images and of its near misses (None: of all labels), without what could not be drawn."""
        shots = [s for s in self.shots if not s.undrawn and label in (None, s.label)]
        return [s.activation for s in shots if not s.near_miss], [s.activation for s in shots if s.near_miss]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(shot.label for shot in self.shots))

    def auc(self, label: str | None = None) -> float | None:
        """The probability that an image of the label excites the unit more than a near miss, ties counting half (Hanley
        and McNeil 1982). None where either could not be drawn."""
        own, near = self.of(label)
        if not own or not near:
            return None
        pairs = np.subtract.outer(np.asarray(own), np.asarray(near))
        return float(((pairs > 0) + 0.5 * (pairs == 0)).mean())

    @property
    def worst(self) -> tuple[str, float] | None:
        """The label that the unit tells least from its near misses."""
        known = [(found, label) for label in self.labels if (found := self.auc(label)) is not None]
        return (min(known)[1], min(known)[0]) if known else None


def plain(value: Evidence | Confirmation | None) -> dict[str, Any] | None:
    """As JSON, without pictures."""
    if value is None:
        return None
    made = {name: getattr(value, name) for name in value.__dataclass_fields__ if name != "pictures"}
    return {name: _plain(part) for name, part in made.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in cast(dict[str, Any], value).items()}
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def evidence_of(values: Mapping[str, Any]) -> Evidence:
    checks = tuple(Check(**check | {"state": State(check["state"])}) for check in values["checks"])
    return Evidence(
        checks=checks, tested=tuple(Tested(**one) for one in values["tested"]), sent_back=values["sent_back"]
    )


def confirmation_of(values: Mapping[str, Any], pictures: dict[str, Picture]) -> Confirmation:
    shots = tuple(Shot(**shot | {"undrawn": tuple(shot["undrawn"])}) for shot in values["shots"])
    spent = {service: Spent(**one) for service, one in values["spent"].items()}
    return Confirmation(shots=shots, spent=spent, pictures=pictures)
