"""The state of each listed hypothesis, from the images that calls measured for it and against it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from openmaia.agent.evidence.demands import find_measured_images, hypothesis_key
from openmaia.runs.evidence import rank_auc
from openmaia.runs.records import ImageEntry, Turn

LEAST_IMAGES = 3
"""Different images of a hypothesis, and negative controls, without which it is open. With three of each, chance alone
ranks all images above all controls once in twenty times."""
SUPPORTED, REFUTED = 0.75, 0.5
"""AUC of the images against the controls from which a hypothesis is supported, and up to which it is refuted."""


class HypothesisState(StrEnum):
    """What measurements say of a hypothesis."""

    OPEN = "open"
    """Too few images, or an AUC between the two bounds."""
    SUPPORTED = "supported"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisStanding:
    """A listed hypothesis, and the activations that were measured for it."""

    hypothesis: str
    """The entry of the list, in the agent's words."""
    own: tuple[float, ...]
    """On different images that show it."""
    controls: tuple[float, ...]
    """On its negative controls."""

    @property
    def auc(self) -> float | None:
        """The AUC of the images against the controls; None without one of both."""
        return rank_auc(self.own, self.controls)

    @property
    def state(self) -> HypothesisState:
        """See `HypothesisState`."""
        auc = self.auc
        if auc is None or min(len(self.own), len(self.controls)) < LEAST_IMAGES:
            return HypothesisState.OPEN
        if auc >= SUPPORTED:
            return HypothesisState.SUPPORTED
        return HypothesisState.REFUTED if auc <= REFUTED else HypothesisState.OPEN


def find_standings(turns: Sequence[Turn]) -> list[HypothesisStanding]:
    """Returns the hypotheses of the latest list, each id once. Images count that calls of any turn measured for them."""
    measured = find_measured_images(turns)
    listed = next((turn.hypotheses for turn in reversed(turns) if turn.hypotheses), ())
    entries = {hypothesis_key(entry): entry for entry in listed}
    return [
        HypothesisStanding(
            hypothesis=entry,
            own=tuple(_values(measured.get((key, False), {}).values())),
            controls=tuple(_values(measured.get((key, True), {}).values())),
        )
        for key, entry in entries.items()
    ]


def describe_standings(turns: Sequence[Turn]) -> str:
    """Returns what the agent reads about its hypotheses after the last turn; empty unless this turn measured one."""
    entries = (entry for turn in turns[-1:] for call in turn.calls for entry in call.entries)
    if not any(entry.hypothesis for entry in entries):
        return ""
    lines = "".join(f"- {_describe(each)}\n" for each in find_standings(turns))
    return f"[HYPOTHESES]: what the images say that were measured so far:\n{lines}" if lines else ""


def _values(entries: Iterable[ImageEntry]) -> Iterator[float]:
    return (float(entry.activation["value"]) for entry in entries if entry.activation is not None)


def _describe(each: HypothesisStanding) -> str:
    auc = "" if each.auc is None else f", AUC {each.auc:.2f}"
    needs = "" if min(len(each.own), len(each.controls)) >= LEAST_IMAGES else f", {LEAST_IMAGES} of each are needed"
    return (
        f"{each.state}: {each.hypothesis} ({len(each.own)} images, {len(each.controls)} negative controls{auc}{needs})"
    )
