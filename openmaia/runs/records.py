"""The record of an investigation."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from openmaia.core.images import EncodedImage, PixelBox
from openmaia.core.messages import Part
from openmaia.core.money import FREE, Bill
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Scope, Unit
from openmaia.runs.evidence import Confirmation, Evidence, FailedTest

HUMAN = "human"
"""The backbone of records of people; with a name, `human: NAME`."""
RECORD_VERSION = 10
"""Records of other versions are refused."""

_CONTROL = re.compile(r"^\s*not\b[\s:]*", re.IGNORECASE)
"""The start of a name such as "not H1", by which the agent marks images as negative controls."""


class Stop(StrEnum):
    """How an investigation ended."""

    ANSWER = "answer"
    """The agent answered with a description."""
    ABSTAIN = "abstain"
    """The agent answered that its evidence supports no description."""
    LIMIT = "limit"
    """A limit of turns, time, tokens or money was reached. The record holds what was done until then."""
    STOPPED = "stopped"
    """The person who investigated the unit in a notebook, or the agent of the user, ended the investigation without an
    answer."""


class Did(StrEnum):
    """How a tool call came to an image that it returned."""

    EXEMPLAR = "exemplar"
    """It took the image from the dataset."""
    BANK = "bank"
    """It took the image from the bank."""
    SHARED = "shared"
    """It took an image that the agent of another investigation drew."""
    DREW = "drew"
    """It generated the image from a prompt."""
    COPIED = "copied"
    """It generated the image from a prompt of the example in the instructions, which is about another unit."""
    BASE = "base"
    """It took or generated the image as the original of an edit, which follows."""
    EDITED = "edited"
    """It edited the image before this one."""
    MEASURED = "measured"
    """It measured the image."""
    MADE = "made"
    """A tool of the user returned the image."""


LOOKED_UP = (Did.EXEMPLAR, Did.BANK, Did.SHARED)
"""How an agent comes to images that are not its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """An image to which the agent's code can refer."""

    id: str
    """Its name in the agent's code."""
    original: str
    """Digest of the image, a key of `Turn.images`."""
    did: Did
    prompt: str = ""
    """The prompt, the caption of a photograph of the bank, the instruction of an edit, or the kind of exemplars. Empty for `MEASURED` and `MADE`, and for a `BASE`
    that was not generated."""
    of: str = ""
    """For `MEASURED` and `BASE` the id of the image that the call took, for `EDITED` that of its `BASE`. Empty if it had
    none."""
    missing: tuple[str, ...] = ()
    """Words of `prompt` that the generator or editor could not show."""
    mask: bytes | None = None
    """Where the unit's activation exceeds its threshold: one bit per pixel, packed row by row. None without a mask."""
    activation: dict[str, float | bool] | None = None
    """The unit's activation on the image as the agent saw it. None if it was not measured.

    `percentile` and `z` are those among the dataset images, if known. `fired`: whether the activation exceeds the
    unit's mask threshold. `raw`: the logit, if `value` is a probability."""
    seen: PixelBox | None = None
    """The part of the image that the network sees. None if this is the whole image, or if nothing was measured."""
    hypothesis: str = ""
    """The hypothesis that the image tests, in the agent's words. It begins with "not" for a negative control."""

    @property
    def is_control(self) -> bool:
        """Whether the image is a negative control of `tested`."""
        return _CONTROL.match(self.hypothesis) is not None

    @property
    def tested(self) -> str:
        """`hypothesis` without the mark of a negative control."""
        return _CONTROL.sub("", self.hypothesis)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenImage:
    """An image that a tool call took."""

    id: str
    """Its name in the agent's code. Empty if the code made the image, for example with Pillow."""
    is_masked: bool = False
    """Whether the call took the rendering that shows where the unit responds."""

    @property
    def name(self) -> str:
        """Its name and rendering, such as "image-3, masked". Empty without a name."""
        return f"{self.id}, {'masked' if self.is_masked else 'original'}" if self.id else ""

    @property
    def label(self) -> str:
        """The line before the displayed image in the output of an experiment. Empty without a name."""
        return f"[{self.name}]" if self.id else ""


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
    given: tuple[GivenImage, ...] = ()
    """Images that the call took, in the order of its arguments."""
    seconds: float
    """Wall-clock time of the call."""

    @property
    def activations(self) -> tuple[float, ...]:
        """The activations of the images in `entries`, in their order. Images without an activation are left out."""
        return tuple(float(e.activation["value"]) for e in self.entries if e.activation is not None)


class ExperimentStatus(StrEnum):
    """How an experiment ended. After LOST, ERROR_LOST and MEMORY_LOST, which are like OK, ERROR and MEMORY, the process had to
    be replaced, so that the variables of the experiment were lost.
    """

    NONE = ""
    """There was no experiment."""
    OK = "ok"
    """Without an exception."""
    ERROR = "error"
    """With an exception."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    """It used too much memory."""
    DIED = "died"
    """Its process ended or was killed for another reason."""
    LOST = "lost"
    ERROR_LOST = "error_lost"
    MEMORY_LOST = "memory_lost"


class ReplyNote(StrEnum):
    """What was done about a reply."""

    SET_ASIDE = "set_aside"
    """It held an experiment and an answer. The answer was ignored, because it was written without the output of the
    experiment."""
    NOT_RUN = "not_run"
    """It held an experiment and the answer that was asked for. The experiment was not run."""
    CUT = "cut"
    """It repeated itself and was cut."""

    @property
    def words(self) -> str:
        """The note for the reader of a report."""
        return _NOTES[self]


_NOTES = {
    ReplyNote.SET_ASIDE: "an answer beside an experiment: the experiment was run, and the answer was set aside",
    ReplyNote.NOT_RUN: "an experiment beside the answer that was asked for: it was not run",
    ReplyNote.CUT: "the reply repeated itself and was cut",
}


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
    """Mistakes in the format of the reply that the parser corrected, in words."""
    status: ExperimentStatus
    """How the experiment ended."""
    calls: tuple[ToolCall, ...]
    """Calls of tools by the experiment, in their order."""
    observation: tuple[Part, ...]
    """Texts and images that were sent back to the agent: what the experiment printed and displayed, or what
    `failed_test` showed."""
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
    notes: tuple[ReplyNote, ...] = ()
    """What was done about the reply besides parsing it."""
    reasoning: str = ""
    """What the model wrote before the reply to reason about it, as far as it is known. It was neither parsed nor sent
    back to the model."""
    failed_test: FailedTest | None = None
    """The test that sent the answer in this turn back. None for other turns, also for the last answer."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """`forgiven` and `notes`, in words."""
        return (*self.forgiven, *(note.words for note in self.notes))

    @property
    def displayed(self) -> tuple[GivenImage, ...]:
        """The displayed images, one for each image in `observation`."""
        return tuple(one for call in self.calls if call.name == "display" and call.error is None for one in call.given)

    @property
    def raised(self) -> bool:
        """Whether the code of the experiment ended with an exception."""
        return self.status in (ExperimentStatus.ERROR, ExperimentStatus.ERROR_LOST)

    @property
    def completed(self) -> bool:
        """Whether the experiment ended without an exception."""
        return self.status in (ExperimentStatus.OK, ExperimentStatus.LOST)

    @property
    def kept_variables(self) -> bool:
        """Whether later experiments have the variables of this one."""
        return self.status in (ExperimentStatus.OK, ExperimentStatus.ERROR, ExperimentStatus.MEMORY)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the reply, its experiment and its failed test in seconds, including the time in queues."""
        return self.backbone_seconds + self.experiment_seconds + (self.failed_test.seconds if self.failed_test else 0.0)

    @property
    def work_seconds(self) -> float:
        """Computing time in seconds, without the time in queues: that of the agent's code, and of all models in `spent`
        and in the failed test."""
        own = self.experiment_seconds - sum(call.seconds for call in self.calls)
        tested = self.failed_test.confirmation.spent.values() if self.failed_test else ()
        return max(own, 0.0) + sum(usage.seconds for usage in (*self.spent.values(), *tested))

    @property
    def tokens(self) -> int:
        """Sum of the prompt tokens and the generated tokens."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def bill(self) -> Bill:
        """The cost of `spent` and of the failed test."""
        tested = self.failed_test.confirmation.spent.values() if self.failed_test else ()
        return sum((Bill(usage.dollars, usage.unpriced) for usage in (*self.spent.values(), *tested)), FREE)


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
    """The limit of turns, time, tokens or money that was reached. Empty if no limit ended the investigation."""
    description: str
    """The final description of the unit. Empty if there is none."""
    labels: tuple[str, ...]
    """The labels of the final answer."""
    effects: tuple[str, ...] = ()
    """The classes that the unit raises, as the final answer names them. Empty if it names none."""
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
    version: int = RECORD_VERSION
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
        """Like `Turn.spent`, summed over all turns and `tests`. A turn that is restored after a crash is counted once."""
        total: dict[str, ServiceUsage] = {}
        parts = [turn.spent for turn in self.turns] + [test.spent for test in self.tests]
        for service, usage in (item for part in parts for item in part.items()):
            total[service] = total.get(service, ServiceUsage()) + usage
        return total

    @property
    def tests(self) -> tuple[Confirmation, ...]:
        """The confirmations of all answers: those that failed and sent an answer back, and `confirmation`."""
        failed = tuple(turn.failed_test.confirmation for turn in self.turns if turn.failed_test)
        return (*failed, self.confirmation) if self.confirmation else failed

    @property
    def tool_calls(self) -> dict[str, int]:
        """Number of calls of each tool."""
        names = [call.name for turn in self.turns for call in turn.calls]
        return {name: names.count(name) for name in sorted(set(names))}

    def drawn_prompts(self) -> list[str]:
        """Returns the texts of requests to generate, edit or describe images (see `ToolCall.asked`), also those of
        `tests`."""
        asked = [prompt for turn in self.turns for call in turn.calls for prompt in call.asked]
        return asked + [sample.prompt for test in self.tests for sample in test.samples]

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
        wanted = [label for label in self.labels if _words(label).strip()]
        for number, turn in enumerate(self.turns, start=1):
            if wanted and all(any(mentions(entry, label) for entry in turn.hypotheses) for label in wanted):
                return number
        return None

    @property
    def top_exemplars(self) -> tuple[ImageEntry, ...]:
        """The top exemplars of the unit, the most activating first; none if the agent requested none."""
        calls = (call for turn in self.turns for call in turn.calls if self.unit.scope is Scope.UNIT)
        found = (tuple(e for e in call.entries if e.did is Did.EXEMPLAR and e.prompt == "top") for call in calls)
        return next(filter(None, found), ())

    @property
    def images(self) -> dict[str, EncodedImage]:
        """All images of the turns and of `confirmation`. The keys are digests of their pixels."""
        images = {digest: image for turn in self.turns for digest, image in turn.images.items()}
        return images | (self.confirmation.images if self.confirmation else {})


def mentions(text: str, phrase: str) -> bool:
    """Returns whether a text contains the words of a phrase next to each other. Case, punctuation and spacing are
    ignored. False for a phrase without words.
    """
    words = _words(phrase)
    return bool(words.strip()) and words in _words(text)


@lru_cache(maxsize=4096)
def _words(text: str) -> str:
    """Returns the lower-case words, each surrounded by blanks, so that `in` compares whole words."""
    return " " + " ".join(re.findall(r"\w+", text.casefold())) + " "


def dumps(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Returns canonical JSON: equal values give equal text. `default` is that of `json.dumps`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=default)
