"""Messages between the program and a backbone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from openmaia.core.images import EncodedImage
from openmaia.core.money import FREE, Bill


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


Part = str | EncodedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Texts and images by one author."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The texts, joined with line breaks."""
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def images(self) -> tuple[EncodedImage, ...]:
        return tuple(part for part in self.parts if isinstance(part, EncodedImage))


def system(text: str) -> Message:
    """Makes a system message."""
    return Message(role=Role.SYSTEM, parts=(text,))


def user(*parts: Part) -> Message:
    """Makes a user message."""
    return Message(role=Role.USER, parts=parts)


def assistant(text: str) -> Message:
    """Makes a message that repeats a reply of the backbone."""
    return Message(role=Role.ASSISTANT, parts=(text,))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """The headings, in capitals, of the sections of an answer, such as `[DESCRIPTION]:`."""

    text: str = "DESCRIPTION"
    """Heading of the section with the description."""
    labels: str = "LABEL"
    """Heading of a section with one label. A number may follow, as in `[LABEL 2]:`."""
    decided_by: str = "DESCRIPTION"
    """`text` or `labels`. A reply without a section of this heading is no answer."""
    effect: str = ""
    """Heading of an optional section with the classes that the unit raises. Empty: the answer has none."""
    choices: tuple[str, ...] = ()
    """The valid labels in capitals. Empty: every label is valid."""
    placeholders: tuple[str, ...] = ()
    """What the question shows in angle brackets. A section that only repeats one of them counts as empty."""


class TurnKind(StrEnum):
    """What the agent's next reply may contain. Only a backbone that can constrain generation enforces it."""

    ANY = "any"
    EXPERIMENT = "experiment"
    """Demanded while no answer would be accepted."""
    MEASUREMENT = "measurement"
    """An experiment that measures the unit on generated images. Demanded of an agent that repeats itself before it has
    the evidence for an answer."""
    ANSWER = "answer"
    """Demanded when the agent may run no more experiments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A request to continue a conversation."""

    conversation: str
    """Requests with one id go to the replica whose cache holds the prefix. Empty for an isolated question, such as what
    an image shows."""
    messages: Sequence[Message]
    seed: int
    max_tokens: int
    answer: AnswerFormat | None = None
    """None for an isolated question."""
    expected: TurnKind = TurnKind.ANY
    left_out: int = 0
    """Number of earlier turns that are not among the messages, because they are empty or repeat others."""
    repetitions: int = 0
    """How many of the latest turns are left out in a row. The sampling temperature rises with this number."""

    @property
    def is_turn(self) -> bool:
        """Whether a turn of an investigation is requested. Its reply is cut after the first experiment."""
        return self.answer is not None


def is_turn(requests: Sequence[Any]) -> bool:
    """Returns whether a call asks for turns of investigations alone. These were permitted before (`Account.may_go_on`)."""
    return all(isinstance(request, Chat) and request.is_turn for request in requests)


class Cut(StrEnum):
    """Why a reply was ended before the model ended it."""

    NONE = ""
    EXPERIMENT = "experiment"
    """The reply contained a complete experiment."""
    REPETITION = "repetition"
    """The reply repeated a passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply, with the numbers of tokens that the backbone reports."""

    text: str
    """Without lone surrogates. Empty if the model ended at once, or spent its tokens on reasoning or an incomplete
    function call."""
    reasoning: str = ""
    """As far as the server sends it. It is kept in the record, and neither parsed nor sent back."""
    prompt_tokens: int = 0
    """Includes cached tokens."""
    cached_tokens: int = 0
    written_tokens: int = 0
    """Prompt tokens that the server wrote to its cache. 0 if it does not count them."""
    generated_tokens: int = 0
    """Includes tokens that are not in the text, such as those of reasoning."""
    left_out: str = ""
    """What part of the conversation was dropped because the context is full, in words. Empty if none."""
    cut: Cut = Cut.NONE
    bill: Bill = FREE
    waited: float = field(default=0.0, compare=False)
    """Seconds for which the request waited because the server limits the rate. They count as time in a queue."""

    def __post_init__(self) -> None:
        # Servers may send lone surrogates, which cannot be stored.
        for name in ("text", "reasoning"):
            object.__setattr__(self, name, getattr(self, name).encode(errors="replace").decode())


def waited_for(answers: Sequence[Any]) -> float:
    """Returns the seconds for which the requests of one call waited because a server limits the rate."""
    return max((answer.waited for answer in answers if isinstance(answer, Reply)), default=0.0)
