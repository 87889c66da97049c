"""The record of an investigation."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from openmaia.core.images import EncodedImage, PixelBox
from openmaia.core.messages import Part
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Unit
from openmaia.runs.evidence import Confirmation, Evidence

VERSION = 8
"""Records of other versions are refused."""

SET_ASIDE = "an answer beside an experiment: the experiment was run, and the answer was set aside"
CUT = "the reply repeated itself and was cut"
"""SET_ASIDE and CUT are notes in `Turn.forgiven`. SET_ASIDE: a reply held an experiment and an answer. The answer was
ignored, because it was written without the output of the experiment."""


class Stop(StrEnum):
    """How an investigation ended."""

    ANSWER = "answer"
    """The agent answered with a description."""
    ABSTAIN = "abstain"
    """The agent answered that its evidence supports no description."""
    LIMIT = "limit"
    """The limit of turns, time or tokens was reached. The record holds what was done until then."""
    STOPPED = "stopped"
    """A person who investigated the unit in a notebook ended the investigation without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """An image to which the agent's code can refer."""

    id: str
    """Its name in the agent's code."""
    original: str
    """Digest of the image, a key of `Turn.images`."""
    mask: bytes | None
    """Where the unit's activation exceeds its threshold: one bit per pixel, packed row by row. None without a mask."""
    activation: dict[str, float | bool] | None
    """The unit's activation on the image as the agent saw it. None if it was not measured.

    `percentile` and `z` are those among the dataset images, if known. `fired`: whether the activation exceeds the
    unit's mask threshold. `raw`: the logit, if `value` is a probability."""
    seen: PixelBox | None = None
    """The part of the image that the network sees. None if this is the whole image, or if nothing was measured."""
    hypothesis: str = ""
    """The hypothesis that the image tests, in the agent's words. It begins with "not" for a negative control."""


class PromptFault(StrEnum):
    """Why the image of a prompt or instruction is not the evidence that the agent meant it to be."""

    NOT_DRAWN = "not_drawn"
    """The generator or editor could not show some of its words."""
    COPIED = "copied"
    """It is from the example in the instructions, which is about another unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptNote:
    """A fault of a prompt or instruction. The agent is told of it in words that are made from this."""

    fault: PromptFault
    prompt: str
    words: tuple[str, ...] = ()
    """What could not be drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool by the agent's code."""

    ordinal: int
    """Number of the call within its turn, from 0."""
    name: str
    """Name of the tool."""
    arguments: str
    """The arguments as JSON. Binary values are replaced by their digests."""
    arguments_digest: str
    """Digest of `arguments`. If the experiment is repeated after a crash, the call must have the same digest."""
    result: str | None
    """The result as JSON, like `arguments`. None if the call failed."""
    error: str | None
    """Error message that the agent received. None if the call succeeded."""
    entries: tuple[ImageEntry, ...]
    """Images that the call returned to the agent's code, each with the unit's activation on it if it is known."""
    shown: tuple[Part, ...]
    """Texts and images that the call displayed to the agent."""
    asked: tuple[str, ...]
    """Prompts, editing instructions and questions that the call sent to models."""
    notes: tuple[PromptNote, ...] = ()
    """Faults of its prompts and instructions."""
    seconds: float
    """Wall-clock time of the call."""

    @property
    def activations(self) -> tuple[float, ...]:
        """The activations of the images in `entries`, in their order. Images without an activation are left out."""
        return tuple(float(e.activation["value"]) for e in self.entries if e.activation is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of an investigation."""

    index: int
    """Number of the turn, from 0."""
    reply: str
    """The whole text of the reply."""
    code: str
    """The code of the experiment. Empty without an experiment."""
    hypotheses: tuple[str, ...]
    """The hypotheses that the reply lists."""
    forgiven: tuple[str, ...]
    """Mistakes in the format of the reply that the parser corrected, and other notes about the reply in words."""
    status: str
    """How the experiment ended. Empty without an experiment.

    "ok": without an exception; "error": with an exception; "timeout": it took too long; "memory": it used too much
    memory; "died": its process ended or was killed for another reason. "lost", "error_lost" and
    "memory_lost" are like "ok", "error" and "memory", but the process had to be replaced, so that the variables of the
    experiment were lost."""
    calls: tuple[ToolCall, ...]
    """Calls of tools by the experiment, in their order."""
    observation: tuple[Part, ...]
    """Texts and images that the experiment printed and displayed. They were sent back to the agent."""
    output_digest: str
    """Digest of the observation. If the experiment is repeated after a crash, it must give the same digest."""
    prompt_tokens: int
    """Number of tokens of the conversation that the model received for this reply."""
    cached_tokens: int
    """Number of those prompt tokens that the model took from its prefix cache."""
    generated_tokens: int
    """Number of tokens that the model generated."""
    left_out: str
    """Which part of the conversation did not fit into the model's context, in words. Empty if all of it fitted."""
    backbone_seconds: float
    """Wall-clock time until the backbone had written the reply."""
    experiment_seconds: float
    """Wall-clock time of the experiment, including its calls of tools."""
    spent: dict[str, ServiceUsage] = field(default_factory=dict[str, ServiceUsage])
    """Number of requests to each service in this turn, and their computing time. The keys are "target", "generator",
    "editor", "backbone", and "tools": the process that answers the calls of tools, with the user's own tools."""
    images: dict[str, EncodedImage] = field(default_factory=dict[str, EncodedImage])
    """Images that occur for the first time in this turn. The keys are digests of their pixels."""
    reasoning: str = ""
    """What the model wrote before the reply to reason about it, as far as it is known. It was neither parsed nor sent
    back to the model."""

    @property
    def raised(self) -> bool:
        """Whether the code of the experiment ended with an exception."""
        return self.status in ("error", "error_lost")

    @property
    def seconds(self) -> float:
        """Wall-clock time of the reply and its experiment in seconds, including the time in queues."""
        return self.backbone_seconds + self.experiment_seconds

    @property
    def work_seconds(self) -> float:
        """Computing time in seconds, without the time in queues: that of the agent's code and of all models in `spent`."""
        own = self.experiment_seconds - sum(call.seconds for call in self.calls)
        return max(own, 0.0) + sum(usage.seconds for usage in self.spent.values())

    @property
    def tokens(self) -> int:
        """Sum of the prompt tokens and the generated tokens."""
        return self.prompt_tokens + self.generated_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that happened in one investigation."""

    unit: Unit
    """The unit, or the layer or network as a whole (see `Unit.scope`), that was investigated."""
    replicate: int
    """Number of this investigation among those of the same unit, from 0."""
    stop: Stop
    """How the investigation ended."""
    cause: str
    """The limit of turns, time or tokens that was reached. Empty if no limit ended the investigation."""
    description: str
    """The final description of the unit. Empty if there is none."""
    labels: tuple[str, ...]
    """The labels of the final answer."""
    backbone: str
    """Name of the backbone."""
    task: str
    """Name of the task."""
    sandbox: str
    """How strongly the agent's code was confined: "full", "degraded" (by a kernel with an older version of Landlock,
    see `openmaia.agent.sandbox.policy`) or "none". A remark may follow, as in "none (no agent)"."""
    prompts: tuple[str, ...]
    """Texts of the messages before the first reply: the system message, then the user messages."""
    turns: tuple[Turn, ...]
    """The turns in order."""
    config: dict[str, Any]
    """The config of the run with the values of all keys."""
    preprocessing: str = ""
    """What is done to any image before the network receives it, in words. What the network saw of one image is in
    `ImageEntry.seen`. Empty if the units are not part of a network, but for example formulas over pixels."""
    started: float
    """Time at which the investigation began, in seconds since 1970."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader, for example that the investigation was restarted."""
    evidence: Evidence = field(default_factory=Evidence)
    """Whether the experiments meet the requirements of the task."""
    confirmation: Confirmation | None = None
    """The activations on contrasts that test the final labels. None if the labels were not tested in this way."""
    version: int = VERSION
    """Version of the file format."""

    @property
    def seconds(self) -> float:
        """Wall-clock time of all turns in seconds, including the time in queues."""
        return sum(turn.seconds for turn in self.turns)

    @property
    def tokens(self) -> int:
        """Sum of the prompt tokens and the generated tokens of all turns. A prompt is the whole conversation before its
        turn."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def spent(self) -> dict[str, ServiceUsage]:
        """Like `Turn.spent`, summed over all turns and `confirmation`. A turn that is restored after a crash is counted
        once."""
        total: dict[str, ServiceUsage] = {}
        parts = [turn.spent for turn in self.turns] + ([self.confirmation.spent] if self.confirmation else [])
        for service, usage in (item for part in parts for item in part.items()):
            total[service] = total.get(service, ServiceUsage()) + usage
        return total

    @property
    def tool_calls(self) -> dict[str, int]:
        """Number of calls of each tool."""
        names = [call.name for turn in self.turns for call in turn.calls]
        return {name: names.count(name) for name in sorted(set(names))}

    def drawn_prompts(self) -> list[str]:
        """Returns the texts of requests to generate, edit or describe images (see `ToolCall.asked`), also those of
        `confirmation`."""
        asked = [prompt for turn in self.turns for call in turn.calls for prompt in call.asked]
        return asked + [sample.prompt for sample in self.confirmation.samples] if self.confirmation else asked

    @property
    def messages(self) -> int:
        """Number of messages: `prompts`, replies, and the outputs of the experiments after each reply but the last."""
        return len(self.prompts) + 2 * len(self.turns) - 1 if self.turns else len(self.prompts)

    @property
    def converged(self) -> int | None:
        """Number of the first turn, counted from 1, that lists all `labels` as hypotheses. None without such a turn.

        A turn lists a label if one of its `hypotheses` contains the words of the label next to each other. Case,
        punctuation and spacing are ignored.
        """
        wanted = [words for words in map(_words, self.labels) if words.strip()]
        for number, turn in enumerate(self.turns, start=1):
            listed = [_words(entry) for entry in turn.hypotheses]
            if wanted and all(any(words in entry for entry in listed) for words in wanted):
                return number
        return None

    @property
    def images(self) -> dict[str, EncodedImage]:
        """All images of the turns and of `confirmation`. The keys are digests of their pixels."""
        images = {digest: image for turn in self.turns for digest, image in turn.images.items()}
        return images | (self.confirmation.images if self.confirmation else {})


def _words(text: str) -> str:
    """Returns the lower-case words, each surrounded by blanks, so that `in` compares whole words."""
    return " " + " ".join(re.findall(r"\w+", text.casefold())) + " "


def dumps(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Returns canonical JSON: equal values give equal text. `default` is that of `json.dumps`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=default)
