"""The record of one investigation: everything that happened in it. Records are the product of a run."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Unit
from openmaia.runs.evidence import Confirmation, Evidence

VERSION = 5
"""Version of the format in which records are stored. Records of other versions are refused."""

SET_ASIDE = "an answer beside an experiment: the experiment was run, and the answer was set aside"
CUT = "the reply repeated itself and was cut"
"""SET_ASIDE and CUT are notes in `Turn.forgiven`. SET_ASIDE: a reply held an experiment and an answer. The answer was
ignored, because it was written without the output of the experiment."""


class Stop(StrEnum):
    """How an investigation ended."""

    ANSWER = "answer"
    ABSTAIN = "abstain"
    """The agent answered that its evidence supports no description."""
    LIMIT = "limit"
    """Turns, time or tokens ran out. The record holds what had been done until then."""
    STOPPED = "stopped"
    """The user ended it in a notebook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """An image to which the agent's code can refer."""

    id: str
    """Name of the image in the agent's code."""
    original: str
    """Digest of the image, a key of `Turn.images`."""
    mask: bytes | None
    """Pixels at which the unit's activation exceeds its threshold: one bit per pixel, packed row by row. None without a
    mask."""
    activation: dict[str, float | bool] | None
    """Result of measuring the unit on the image, as the agent saw it. The activation itself is under the key `value`.
    None if the image was not measured."""
    hypothesis: str = ""
    """The hypothesis that the image tests, in the agent's words. It begins with "not" for a negative control."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool by the agent's code."""

    ordinal: int
    """Number of the call within its turn, from 0."""
    name: str
    arguments: str
    """The arguments as JSON. Binary values are replaced by their digests."""
    arguments_digest: str
    result: str | None
    """The result as JSON, like `arguments`. None if the call failed."""
    error: str | None
    """Error message that the agent received. None if the call succeeded."""
    entries: tuple[ImageEntry, ...]
    """Images that the call made available to the agent's code, each with its measurement if there was one."""
    shown: tuple[Part, ...]
    """Texts and images that the call displayed to the agent."""
    asked: tuple[str, ...]
    """Prompts and instructions that the call sent to the image generator or the image editor."""
    seconds: float

    @property
    def activations(self) -> tuple[float, ...]:
        """The activations that the call measured, in the order of `entries`."""
        return tuple(float(e.activation["value"]) for e in self.entries if e.activation is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply of the agent and the experiment (a code block) that it contains."""

    index: int
    """Number of the turn, from 0."""
    reply: str
    """The whole text of the reply."""
    code: str
    """The agent's code, "" without an experiment."""
    hypotheses: tuple[str, ...]
    """The hypotheses that the reply lists."""
    forgiven: tuple[str, ...]
    """Mistakes in the form of the reply that the parser corrected, and notes such as CUT."""
    status: str
    """How the experiment ended: "ok", "error", "timeout", "memory", "died" (see `agent.sandbox.contract.Status`). "lost" and
    "error_lost" stand for "ok" and "error" if its process had to be replaced. "" without an experiment."""
    calls: tuple[ToolCall, ...]
    observation: tuple[Part, ...]
    """Texts and images that were sent back to the agent."""
    output_digest: str
    """Digest of the observation. A replay of the experiment after a crash must give an observation with this digest."""
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    left_out: str
    """Describes the part of the conversation that did not fit into the context of the agent's model, if any."""
    backbone_seconds: float
    experiment_seconds: float
    spent: dict[str, ServiceUsage] = field(default_factory=dict[str, ServiceUsage])
    """Requests and computing time of the turn by service, such as "generator"."""
    images: dict[str, EncodedImage] = field(default_factory=dict[str, EncodedImage])
    """Images that occurred first in this turn, by digest."""

    @property
    def raised(self) -> bool:
        """Whether the experiment ended with an exception."""
        return self.status in ("error", "error_lost")

    @property
    def seconds(self) -> float:
        """Duration of the agent's reply and its experiment in seconds, including waiting times."""
        return self.backbone_seconds + self.experiment_seconds

    @property
    def work_seconds(self) -> float:
        """Seconds that the services (models) and the agent's code took in this turn.

        Waiting times in queues are excluded.
        """
        own = self.experiment_seconds - sum(call.seconds for call in self.calls)
        return max(own, 0.0) + sum(usage.seconds for usage in self.spent.values())

    @property
    def tokens(self) -> int:
        """Number of prompt tokens and generated tokens together."""
        return self.prompt_tokens + self.generated_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that happened in one investigation."""

    unit: Unit
    replicate: int
    stop: Stop
    cause: str
    """The limit of turns, time or tokens that was reached. Empty if no limit ended the investigation."""
    description: str
    """The final description of the unit. Empty without an answer."""
    labels: tuple[str, ...]
    """The labels (short phrases) of the final answer. Empty without an answer."""
    backbone: str
    """Name of the model that played the agent."""
    task: str
    """Name of the task that the agent was given."""
    sandbox: str
    """Level of confinement of the agent's code."""
    prompts: tuple[str, ...]
    """Texts of the messages before the first reply: the instructions (system message), then the user messages."""
    turns: tuple[Turn, ...]
    config: dict[str, Any]
    """The config of the run with the values of all keys."""
    preprocessing: str = ""
    """What was done to an image before the network received it, in words. Empty for a target that is no network."""
    started: float
    """Time at which the investigation began, in seconds since 1970."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader, for example that the investigation was restarted."""
    evidence: Evidence = field(default_factory=Evidence)
    confirmation: Confirmation | None = None
    """Result of the test of the final labels on new images. None if they were not tested."""
    version: int = VERSION

    @property
    def seconds(self) -> float:
        """Duration of all turns in seconds."""
        return sum(turn.seconds for turn in self.turns)

    @property
    def tokens(self) -> int:
        """Number of prompt tokens and generated tokens of all turns."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def spent(self) -> dict[str, ServiceUsage]:
        """Requests and computing time of the whole investigation by service. A replayed turn counts once."""
        total: dict[str, ServiceUsage] = {}
        parts = [turn.spent for turn in self.turns] + ([self.confirmation.spent] if self.confirmation else [])
        for service, usage in (item for part in parts for item in part.items()):
            total[service] = total.get(service, ServiceUsage()) + usage
        return total

    @property
    def tool_calls(self) -> dict[str, int]:
        """Number of calls of each tool, by its name."""
        names = [call.name for turn in self.turns for call in turn.calls]
        return {name: names.count(name) for name in sorted(set(names))}

    @property
    def messages(self) -> int:
        """Length of the conversation: opening messages, replies, and observations after all replies but the last."""
        return len(self.prompts) + 2 * len(self.turns) - 1 if self.turns else len(self.prompts)

    @property
    def converged(self) -> int | None:
        """Number, from 1, of the first turn whose hypothesis list contains every label of the final answer.

        A list contains a label if the label's words occur consecutively in one of its entries. Case, punctuation and
        spacing are ignored. None without labels, or if no list contains all of them.
        """
        wanted = [words for words in map(_words, self.labels) if words.strip()]
        for number, turn in enumerate(self.turns, start=1):
            listed = [_words(entry) for entry in turn.hypotheses]
            if wanted and all(any(words in entry for entry in listed) for words in wanted):
                return number
        return None

    @property
    def images(self) -> dict[str, EncodedImage]:
        """All images of the investigation and of the test of its answer, by digest."""
        images = {digest: image for turn in self.turns for digest, image in turn.images.items()}
        return images | (self.confirmation.images if self.confirmation else {})


def _words(text: str) -> str:
    """Returns the lower-case words of a text, each surrounded by blanks, so that `in` compares whole words."""
    return " " + " ".join(re.findall(r"\w+", text.casefold())) + " "


def dumps(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Returns canonical JSON: equal values give equal text.

    Args:
        value: The value.
        default: Converts values that JSON cannot represent, as in `json.dumps`.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=default)
