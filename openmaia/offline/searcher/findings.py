"""Reads what was measured and seen out of the messages of an investigation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from openmaia.core.messages import Message, Role
from openmaia.offline.experimenter.refutations import read_refuted
from openmaia.offline.experimenter.transcript import read_bank_words, withheld_tools

_VALUES = re.compile(r"^(screen|single|crowd|around|pair|check|recheck|edit|except): ([-+.\de naif]+)$", re.MULTILINE)
_HIGHEST = re.compile(r"^highest: (\S+) for ", re.MULTILINE)
_EXEMPLAR = re.compile(r"^(top|random) exemplar: (\S+)$", re.MULTILINE)
_SEEN = re.compile(
    r"^\[[^\]]*\] (?P<whole>[^;\n]*?)(?:; where the unit responds: (?P<part>[^;\n]*?)|; [^\n]*)?\.?$", re.MULTILINE
)

# Images excite a unit more than the dataset does by this factor of the strongest activations.
_FAR = 2.0

# The last call of each task names the head of its answer.
_ENDS = ("[DESCRIPTION]", "[BIAS]", "[LABEL]: SELECTIVE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldExemplar:
    """What the viewer says of an exemplar."""

    kind: str
    """`top` or `random`."""
    activation: float
    whole: str
    part: str = ""
    """Of the part where the unit responds. Empty if that is no small part."""


@dataclass(slots=True)
class Findings:
    """What an investigation has found so far."""

    exemplars: list[ToldExemplar] = field(default_factory=list[ToldExemplar])
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Activations by the stage that measured them, in the order of its images. The logits of a class."""
    highest: dict[str, float] = field(default_factory=dict[str, float])
    """The highest activation by the stage that measured it, comparable with those of exemplars."""
    withheld: frozenset[str] = frozenset()
    """Tools that the agent may not use."""
    bank: Sequence[str] = ()
    """The words of the bank that the question names as hypotheses."""
    refuted: Sequence[frozenset[str]] = ()
    """The labels that failed a test, for each answer that was sent back."""
    replies: int = 0
    has_looked: bool = False
    """Whether exemplars were asked for."""
    is_last_call: bool = False
    """Whether the latest message demands the final answer."""

    @property
    def refuted_labels(self) -> frozenset[str]:
        """All labels of answers that were sent back."""
        return frozenset[str]().union(*self.refuted)

    def telling(self, *stages: str) -> list[ToldExemplar]:
        """Returns the exemplars that tell what excites the unit: without top exemplars that hardly excite it. Empty if all of them
        are far weaker than the images of some stages: then the dataset lacks what excites the unit."""
        top, random = ([each.activation for each in self.exemplars if each.kind == kind] for kind in ("top", "random"))
        strongest = max((self.highest[each] for each in stages if each in self.highest), default=0.0)
        if not top or strongest > _FAR * max(top) > 0:
            return []
        least = (max(top) + fmean(random or [0.0])) / 2
        return [each for each in self.exemplars if each.kind == "random" or each.activation >= least]


def read(messages: Sequence[Message]) -> Findings:
    """Reads the messages of an investigation."""
    found = Findings(replies=sum(each.role is Role.ASSISTANT for each in messages))
    found.withheld = withheld_tools(messages[0].text)
    found.bank = [each.text for each in read_bank_words(messages)]
    found.refuted = read_refuted(messages)
    found.has_looked = any("dataset_exemplars" in each.text for each in messages[2:] if each.role is Role.ASSISTANT)
    for message in messages[2:]:
        if message.role is Role.USER:
            _observe(message.text, found)
    found.is_last_call = found.replies > 0 and any(each in messages[-1].text for each in _ENDS)
    return found


def _observe(text: str, found: Findings) -> None:
    highest = _HIGHEST.search(text)
    for match in _VALUES.finditer(text):
        found.values.setdefault(match[1], []).extend(map(float, match[2].split()))
        if highest:
            found.highest[match[1]] = float(highest[1])
    kind, activation = "", 0.0
    for line in text.splitlines():
        if exemplar := _EXEMPLAR.match(line):
            kind, activation = exemplar[1], float(exemplar[2])
        elif kind and (seen := _SEEN.match(line)):
            part = seen["part"] or ""
            found.exemplars.append(ToldExemplar(kind=kind, activation=activation, whole=seen["whole"], part=part))
            kind = ""
