"""Reads what was measured and seen out of the messages of an investigation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from openmaia.core.messages import Message, Role
from openmaia.offline.experimenter.transcript import withheld_tools

_VALUES = re.compile(r"^(screen|single|pair|edit): ([-+.\de naif]+)$", re.MULTILINE)
_EXEMPLAR = re.compile(r"^(top|random) exemplar: \S+$", re.MULTILINE)
_SEEN = re.compile(
    r"^\[[^\]]*\] (?P<whole>[^;\n]*?)(?:; where the unit responds: (?P<part>[^;\n]*?)|; [^\n]*)?\.?$", re.MULTILINE
)

# The last call of each task names the head of its answer.
_ENDS = ("[DESCRIPTION]", "[BIAS]", "[LABEL]: SELECTIVE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldExemplar:
    """What the viewer says of an exemplar."""

    kind: str
    """`top` or `random`."""
    whole: str
    part: str = ""
    """Of the part where the unit responds. Empty if that is no small part."""


@dataclass(slots=True)
class Findings:
    """What an investigation has found so far."""

    exemplars: list[ToldExemplar] = field(default_factory=list[ToldExemplar])
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Activations by the stage that measured them, in the order of its images."""
    withheld: frozenset[str] = frozenset()
    """Tools that the agent may not use."""
    replies: int = 0
    has_looked: bool = False
    """Whether exemplars were asked for."""
    is_last_call: bool = False
    """Whether the latest message demands the final answer."""


def read(messages: Sequence[Message]) -> Findings:
    """Reads the messages of an investigation."""
    found = Findings(replies=sum(each.role is Role.ASSISTANT for each in messages))
    found.withheld = withheld_tools(messages[0].text)
    found.has_looked = any("dataset_exemplars" in each.text for each in messages[2:] if each.role is Role.ASSISTANT)
    for message in messages[2:]:
        if message.role is Role.USER:
            _observe(message.text, found)
    found.is_last_call = found.replies > 0 and any(each in messages[-1].text for each in _ENDS)
    return found


def _observe(text: str, found: Findings) -> None:
    for match in _VALUES.finditer(text):
        found.values.setdefault(match[1], []).extend(map(float, match[2].split()))
    kind = ""
    for line in text.splitlines():
        if exemplar := _EXEMPLAR.match(line):
            kind = exemplar[1]
        elif kind and (seen := _SEEN.match(line)):
            found.exemplars.append(ToldExemplar(kind=kind, whole=seen["whole"], part=seen["part"] or ""))
            kind = ""
