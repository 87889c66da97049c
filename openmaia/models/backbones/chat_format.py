"""Converts conversations to a form that all model servers accept, and estimates their numbers of tokens."""

import base64
import math
from collections.abc import Iterable, Sequence

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Part, Role

_BYTES_PER_TOKEN = 3.5
"""Estimated bytes of text per token."""

PART_TOKENS = 4
"""Estimated tokens that a chat template adds around a text."""

PIXELS_PER_TOKEN = 750
"""Estimated pixels of an image per token."""


TEMPERATURE_STEP = 0.3
"""Increase of the sampling temperature per repetition. It is multiplied by `Chat.repetitions`, the number of the
agent's latest consecutive replies that brought nothing new."""
HIGHEST_TEMPERATURE, ACCEPTED_TEMPERATURE = 1.5, 1.0
"""Upper limits of the increased temperature: for servers and engines that are known to accept 1.5 (vLLM, llama.cpp,
SGLang), and for all others."""


def temperature(configured: float, chat: Chat, highest: float) -> float:
    """Returns the sampling temperature of a reply.

    It rises while a model repeats its turns (its replies as the agent), as in the decoding of Whisper (Radford et al.
    2022, section 4.5). Otherwise small models write the same turn again, whatever they are told and whatever the seed
    is.

    Args:
        configured: The temperature that the config sets. The result is never lower.
        chat: The request, which says how many of the latest turns are repetitions.
        highest: The upper limit of the increased temperature.
    """
    return max(configured, min(configured + TEMPERATURE_STEP * chat.repetitions, highest))


def alternating(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Splits a conversation into the system prompt and strictly alternating turns without empty texts.

    A turn is a message of the user or the assistant. Some chat templates and APIs refuse other conversations. Adjacent
    texts of a turn are joined with a line break, because templates differ in how they separate them.

    Returns:
        The system prompt, "" without one, and the turns.
    """
    system = "\n\n".join(_encodable(m.text) for m in messages if m.role is Role.SYSTEM and m.text.strip())
    turns: list[Message] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        before = turns.pop().parts if turns and turns[-1].role is message.role else ()
        if parts := _joined([*before, *message.parts]):
            turns.append(Message(role=message.role, parts=parts))
    return system, turns


def opened(system: str, turns: Sequence[Message]) -> list[Message]:
    """Returns the turns with the system prompt at the start of the first one, for models that know no system role."""
    return alternating([Message(role=Role.USER, parts=(system,)), *turns])[1]


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, EncodedImage):
            joined.append(part)
        elif part.strip():
            last = joined.pop() if joined and isinstance(joined[-1], str) else None
            joined.append(_encodable(part) if last is None else f"{last}\n{_encodable(part)}")
    return tuple(joined)


def _encodable(text: str) -> str:
    """Replaces characters that UTF-8 cannot encode: experiments may print halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def text_tokens(text: str) -> int:
    """Returns the estimated number of tokens of a text."""
    return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN) + PART_TOKENS


def image_tokens(image: EncodedImage) -> int:
    """Returns the number of tokens of an image, estimated from its area."""
    width, height = image.size
    return math.ceil(width * height / PIXELS_PER_TOKEN)


def base64_png(image: EncodedImage) -> str:
    """Returns the image as PNG in base64."""
    return base64.b64encode(image.png).decode()
