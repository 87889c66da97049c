"""A conversation as model servers take it, and how many tokens it is guessed to have."""

import base64
import math
from collections.abc import Iterable, Sequence

from openmaia.images import Picture
from openmaia.messages import Message, Part, Role

BYTES_PER_TOKEN = 3.5
PART_TOKENS = 4
"""What a chat template puts around a text."""

PIXELS_PER_TOKEN = 750


def spoken(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """The system prompt, and the rest in strict alternation without empty texts: some templates and APIs refuse others.

    Neighbouring texts become one, so that no template has to decide what belongs between them.
    """
    system = "\n\n".join(_encodable(m.text) for m in messages if m.role is Role.SYSTEM and m.text.strip())
    said: list[Message] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        before = said.pop().parts if said and said[-1].role is message.role else ()
        if parts := _joined([*before, *message.parts]):
            said.append(Message(role=message.role, parts=parts))
    return system, said


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, Picture):
            joined.append(part)
        elif part.strip():
            last = joined.pop() if joined and isinstance(joined[-1], str) else None
            joined.append(_encodable(part) if last is None else f"{last}\n{_encodable(part)}")
    return tuple(joined)


def _encodable(text: str) -> str:
    """Experiments may print halves of surrogate pairs, which no JSON request can carry."""
    return text.encode("utf-8", "replace").decode()


def text_tokens(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN) + PART_TOKENS


def image_tokens(picture: Picture) -> int:
    width, height = picture.size
    return math.ceil(width * height / PIXELS_PER_TOKEN)


def base64_of(picture: Picture) -> str:
    """Of its PNG."""
    return base64.b64encode(picture.png).decode()
