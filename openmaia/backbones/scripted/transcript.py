"""What the experimenter finds in the messages: numbers in texts, and pictures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from openmaia.images import Picture
from openmaia.messages import Message, Role

EXEMPLAR = re.compile(r"^(?P<kind>top|random) (?P<rank>\d+): (?P<value>\S+) \(.*\)$", re.MULTILINE)
MEASURED = re.compile(r"^(?P<stage>screen|control|edit) (?P<value>\S+) \(.*?\) \| (?P<key>.*)$", re.MULTILINE)
VIEW = re.compile(r"\[\S+, (?P<view>original|masked)\]\s*$")
UNDRAWN = re.compile(r"^note: could not draw .* of (?P<prompt>'.*'|\".*\")$", re.MULTILINE)

SENT_BACK = "[EVIDENCE]:"
WITHHELD = re.compile(r"^Not available in this investigation: (.*)$", re.MULTILINE)


@dataclass(slots=True)
class Shown:
    """An exemplar, with the renderings that were displayed."""

    kind: str
    activation: float
    original: Picture | None = None
    masked: Picture | None = None


@dataclass(slots=True)
class Look:
    """A picture of a control that was displayed, as it is and with the part outside the unit's response darkened."""

    activation: float
    original: Picture
    masked: Picture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """before, after: activations."""

    base: str
    order: str
    before: float
    after: float


@dataclass(slots=True)
class Transcript:
    """measured: by stage, (what was shown, activation). looks: at controls, by prompt. undrawn: prompts that the generator could not draw as asked. withheld: instruments that there are not. sent_back: answers that came too early; lacks_evidence: so the latest."""

    exemplars: list[Shown] = field(default_factory=list[Shown])
    looks: dict[str, list[Look]] = field(default_factory=dict[str, list[Look]])
    measured: dict[str, list[tuple[str, float]]] = field(default_factory=dict[str, list[tuple[str, float]]])
    undrawn: set[str] = field(default_factory=set[str])
    withheld: frozenset[str] = frozenset()
    replies: int = 0
    sent_back: int = 0
    lacks_evidence: bool = False
    is_last_call: bool = False

    def looks_at(self, prompt: str) -> list[Look]:
        """Without what the generator could not draw."""
        return [] if prompt in self.undrawn else self.looks.get(prompt, [])

    @property
    def edits(self) -> list[Edited]:
        """Each picture and what became of it stand one after the other."""
        rows = self.of("edit")
        return [
            Edited(base=key.partition(" => ")[0], order=key.partition(" => ")[2], before=before, after=after)
            for (as_drawn, before), (key, after) in pairwise(rows)
            if as_drawn.endswith(" => as drawn") and not key.endswith(" => as drawn")
        ]

    def of(self, stage: str) -> list[tuple[str, float]]:
        """Without what the generator could not draw."""
        return [(key, value) for key, value in self.measured.get(stage, []) if key.split(" => ")[0] not in self.undrawn]


def read(messages: Sequence[Message]) -> Transcript:
    transcript = Transcript(replies=sum(message.role is Role.ASSISTANT for message in messages))
    found = WITHHELD.search(messages[0].text) if messages else None
    transcript.withheld = frozenset(re.findall(r"tools\.(\w+)", found[1])) if found else frozenset()
    for message in messages[2:]:
        if message.role is Role.USER:
            _observe(message, transcript)
    last = messages[-1].text if transcript.replies else ""
    transcript.sent_back = sum(SENT_BACK in message.text for message in messages[2:] if message.role is Role.USER)
    transcript.lacks_evidence = SENT_BACK in last
    transcript.is_last_call = "[DESCRIPTION]" in last
    return transcript


def _observe(message: Message, transcript: Transcript) -> None:
    view = prompt = ""
    for part in message.parts:
        if isinstance(part, Picture):
            if prompt and view == "masked":
                transcript.looks[prompt][-1].masked = part
            elif prompt:
                value = transcript.measured["control"][-1][1]
                transcript.looks.setdefault(prompt, []).append(Look(value, part))
            else:
                _attach(part, view, transcript)
            continue
        for found in EXEMPLAR.finditer(part):
            transcript.exemplars.append(Shown(kind=found["kind"], activation=float(found["value"])))
        for found in MEASURED.finditer(part):
            transcript.measured.setdefault(found["stage"], []).append((found["key"], float(found["value"])))
            prompt = found["key"] if found["stage"] == "control" else ""
        transcript.undrawn.update(found["prompt"][1:-1] for found in UNDRAWN.finditer(part))
        label = VIEW.search(part)
        view = label["view"] if label else ""


def _attach(picture: Picture, view: str, transcript: Transcript) -> None:
    if not transcript.exemplars:
        return
    if view == "masked":
        transcript.exemplars[-1].masked = picture
    else:
        transcript.exemplars[-1].original = picture
