"""Messages between the program and a backbone, the model that plays the agent."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from openmaia.core.images import EncodedImage


class Role(StrEnum):
    """Author of a message to or from a language model."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


Part = str | EncodedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a conversation: text and images by one author."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The texts of the message, joined with line breaks, without the images."""
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def images(self) -> tuple[EncodedImage, ...]:
        """The images of the message in their order, without the texts."""
        return tuple(part for part in self.parts if isinstance(part, EncodedImage))


def system(text: str) -> Message:
    """Returns a system message."""
    return Message(role=Role.SYSTEM, parts=(text,))


def user(*parts: Part) -> Message:
    """Returns a user message."""
    return Message(role=Role.USER, parts=parts)


def assistant(text: str) -> Message:
    """Returns an assistant message, which is a reply of the backbone."""
    return Message(role=Role.ASSISTANT, parts=(text,))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """The headings, in capitals, of the sections of the agent's final answer, such as `[DESCRIPTION]:`."""

    text: str = "DESCRIPTION"
    """Heading of the section that becomes the description of the unit."""
    labels: str = "LABEL"
    """Heading of a section that holds one label, a short phrase such as one thing that the unit responds to. The
    heading may be followed by a number, as in `[LABEL 2]:`."""
    decided_by: str = "DESCRIPTION"
    """The heading that makes a reply a final answer: the value of `text` or of `labels`. A reply without a section
    with this heading is not a final answer."""
    choices: tuple[str, ...] = ()
    """The valid labels in capitals; if empty, every label is valid."""
    placeholders: tuple[str, ...] = ()
    """The texts that the question to the agent shows in angle brackets where the agent has to fill something in,
    without the brackets. A section that only repeats one of them counts as empty."""


class TurnKind(StrEnum):
    """What the agent's next reply in an investigation may contain, for example only an experiment or only an answer.

    A backbone (the model that plays the agent) enforces this only if it can constrain the generated text, for example
    by a grammar.
    """

    ANY = "any"
    EXPERIMENT = "experiment"
    """An experiment and no answer, because no answer would be accepted yet."""
    MEASUREMENT = "measurement"
    """An experiment that generates images and measures a unit's activation on them. It is demanded of an agent that
    repeats itself before it has run enough experiments for an answer."""
    ANSWER = "answer"
    """An answer and no experiment, because the agent may run no more experiments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A request to a backbone (the model that plays the agent) to continue a conversation."""

    conversation: str
    """Id of the conversation. All requests with the same id go to the same replica of the model, whose cache holds the
    prefix. Empty for an isolated question, such as what an image shows."""
    messages: Sequence[Message]
    seed: int
    max_tokens: int
    answer: AnswerFormat | None = None
    """The format of answers if a turn of an investigation is requested, otherwise None."""
    expected: TurnKind = TurnKind.ANY
    """What the requested turn may contain."""
    left_out: int = 0
    """Number of earlier turns that are not among the messages, because they are empty or repeat other turns."""
    repetitions: int = 0
    """Number of consecutive turns, up to the latest one, that are left out of the messages: 0 if the latest turn is
    among the messages. The sampling temperature of language models rises with this number."""

    @property
    def is_turn(self) -> bool:
        """Whether a turn is requested, that is, a reply of the agent in an investigation.

        False for an isolated question, such as what an image shows. A turn ends with its first experiment (a block of
        code that calls tools). Text after the experiment is cut off.
        """
        return self.answer is not None


class Cut(StrEnum):
    """Why a reply was ended before the model ended it."""

    NONE = ""
    """Nothing was cut off."""
    EXPERIMENT = "experiment"
    """The reply contained a complete experiment."""
    REPETITION = "repetition"
    """The reply repeated the same passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply of a backbone (the model that plays the agent), with the numbers of tokens that it reports."""

    text: str
    """The text without lone surrogates, which servers may send but which cannot be stored. Empty if the model ended the
    reply at once, or used up its tokens for reasoning or for an incomplete function call."""
    reasoning: str = ""
    """The reasoning that precedes the text, as far as the server sends it. It is kept in the record, and neither parsed
    nor sent back to the model. Without lone surrogates."""
    prompt_tokens: int = 0
    """Number of tokens of the prompt, cached ones included."""
    cached_tokens: int = 0
    """How many of the prompt tokens were read from the model's prefix cache."""
    generated_tokens: int = 0
    """Number of tokens that the model generated, including those that are not in the text, such as reasoning."""
    left_out: str = ""
    """Describes the part of the conversation that was dropped because the context is full. Empty if nothing was."""
    cut: Cut = Cut.NONE

    def __post_init__(self) -> None:
        """Replaces lone surrogates in the texts."""
        for name in ("text", "reasoning"):
            object.__setattr__(self, name, getattr(self, name).encode(errors="replace").decode())
