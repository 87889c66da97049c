"""What is said between the loop and a backbone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from openmaia.images import Picture


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


Part = str | Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(part for part in self.parts if isinstance(part, Picture))


def system(text: str) -> Message:
    return Message(role=Role.SYSTEM, parts=(text,))


def user(*parts: Part) -> Message:
    return Message(role=Role.USER, parts=parts)


def assistant(text: str) -> Message:
    return Message(role=Role.ASSISTANT, parts=(text,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One request to a backbone. conversation: constant over its turns, so that it can stay on one replica; empty for
    a single question."""

    conversation: str
    messages: Sequence[Message]
    seed: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """tokens: as the backbone counts them (`scripted` and `replay` count words between blanks). left_out: what of the
    conversation the context had no room for, in words; empty where it fitted."""

    text: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    left_out: str = ""
