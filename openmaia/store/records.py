"""The record of one investigation: everything that happened, and the product of a run."""

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from openmaia.images import Picture
from openmaia.messages import Part
from openmaia.services import Spent
from openmaia.store.evidence import Confirmation, Evidence, plain
from openmaia.units import Unit

VERSION = 4


class Stop(StrEnum):
    """How an investigation ended."""

    ANSWER = "answer"
    ABSTAIN = "abstain"
    """The agent answered that there is nothing to describe."""
    LIMIT = "limit"
    """Out of turns, time or tokens; the record holds what there was."""
    STOPPED = "stopped"
    """By a person, in a notebook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """An image under the name by which the agent knew it. original: a digest, leading into Turn.pictures. mask: one bit
    per pixel, packed row by row; None where there is none. hypothesis: which one it was said to test, in the agent's
    words, "not …" for a negative control."""

    id: str
    original: str
    mask: bytes | None
    activation: dict[str, float | bool] | None
    hypothesis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """arguments and result: JSON, binary values replaced by their digests. error: what the agent was told instead of a
    result. entries, shown, asked: what the call did besides (tools/toolbox.py, Effect)."""

    ordinal: int
    name: str
    arguments: str
    arguments_digest: str
    result: str | None
    error: str | None
    entries: tuple[ImageEntry, ...]
    shown: tuple[Part, ...]
    asked: tuple[str, ...]
    seconds: float

    @property
    def activations(self) -> tuple[float, ...]:
        return tuple(float(e.activation["value"]) for e in self.entries if e.activation is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply and the experiment in it. status: of the experiment ("" where there was none); output_digest: of its
    observation, by which a replay is compared. left_out: of the conversation, where the context had no room for it. spent: what services spent on it, by service. pictures: all that this turn saw
    first, by digest."""

    index: int
    reply: str
    code: str
    hypotheses: tuple[str, ...]
    forgiven: tuple[str, ...]
    status: str
    calls: tuple[ToolCall, ...]
    observation: tuple[Part, ...]
    output_digest: str
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    left_out: str
    backbone_seconds: float
    experiment_seconds: float
    spent: dict[str, Spent] = field(default_factory=dict[str, Spent])
    pictures: dict[str, Picture] = field(default_factory=dict[str, Picture])

    @property
    def seconds(self) -> float:
        return self.backbone_seconds + self.experiment_seconds

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """description: "" where there is none. cause: which limit, or what a replay found. config: resolved, as a dict.
    prompts: the opening messages. notes: what a reader must know (a lower sandbox level, a restart). evidence: what the
    answer rests on. confirmation: the loop's own test of it, None where there was none."""

    unit: Unit
    replicate: int
    stop: Stop
    cause: str
    description: str
    labels: tuple[str, ...]
    backbone: str
    task: str
    sandbox: str
    prompts: tuple[str, ...]
    turns: tuple[Turn, ...]
    config: dict[str, Any]
    started: float
    notes: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    confirmation: Confirmation | None = None
    version: int = VERSION

    @property
    def seconds(self) -> float:
        return sum(turn.seconds for turn in self.turns)

    @property
    def tokens(self) -> int:
        return sum(turn.tokens for turn in self.turns)

    @property
    def spent(self) -> dict[str, Spent]:
        """What each service spent on the whole investigation; a turn that was resumed counts once."""
        total: dict[str, Spent] = {}
        parts = [turn.spent for turn in self.turns] + ([self.confirmation.spent] if self.confirmation else [])
        for service, spent in (item for part in parts for item in part.items()):
            total[service] = total.get(service, Spent()) + spent
        return total

    @property
    def tool_calls(self) -> dict[str, int]:
        """Calls by tool."""
        names = [call.name for turn in self.turns for call in turn.calls]
        return {name: names.count(name) for name in sorted(set(names))}

    @property
    def messages(self) -> int:
        """Length of the conversation: the opening messages, every reply, and what was sent back to each but the last."""
        return len(self.prompts) + 2 * len(self.turns) - 1 if self.turns else len(self.prompts)

    @property
    def converged(self) -> int | None:
        """Turns until the final hypothesis first appeared: the number, from 1, of the first turn whose hypothesis list
        contains every final label. A list contains a label if the label's words stand together, in this order, in one
        of its entries; case, punctuation and spacing do not count. None without labels, or where no list contains them
        all, as when the agent words its answer anew."""
        wanted = [words for words in map(_words, self.labels) if words.strip()]
        for number, turn in enumerate(self.turns, start=1):
            listed = [_words(entry) for entry in turn.hypotheses]
            if wanted and all(any(words in entry for entry in listed) for words in wanted):
                return number
        return None

    @property
    def pictures(self) -> dict[str, Picture]:
        found = {digest: picture for turn in self.turns for digest, picture in turn.pictures.items()}
        return found | (self.confirmation.pictures if self.confirmation else {})


def _words(text: str) -> str:
    """Only its words, with a blank on either side of each: then `in` compares whole words."""
    return " " + " ".join(re.findall(r"\w+", text.casefold())) + " "


def comparable(record: Record) -> dict[str, Any]:
    """The record without what may differ between two equal investigations: times, and the machine's config sections."""

    def part(value: Part) -> str:
        return value if isinstance(value, str) else f"picture {value.digest}"

    return {
        "unit": str(record.unit),
        "replicate": record.replicate,
        "answer": (record.stop.value, record.cause, record.description, list(record.labels)),
        "prompts": list(record.prompts),
        "evidence": plain(record.evidence),
        "confirmation": (plain(record.confirmation) or {}).get("shots"),
        "turns": [
            {
                "reply": turn.reply,
                "status": turn.status,
                "observation": [part(p) for p in turn.observation],
                "calls": [
                    (
                        c.name,
                        c.arguments,
                        c.result,
                        c.error,
                        [part(p) for p in c.shown],
                        [e.original for e in c.entries],
                    )
                    for c in turn.calls
                ],
                "tokens": turn.tokens,
            }
            for turn in record.turns
        ],
    }


def dumps(value: Any) -> str:
    """Canonical JSON: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
