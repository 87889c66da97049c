"""Converts conversations to a form that all model servers accept, and estimates their tokens."""

import base64
import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from cachetools import LRUCache, cached

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Part, Role

_BYTES_PER_TOKEN = 3.5  # estimated, as the two below

PART_TOKENS = 4  # what a chat template adds around a text

PIXELS_PER_TOKEN = 750

_PNG_BYTES = 64 * 2**20  # that a process keeps, encoded for servers


# Added for each of `Chat.repetitions`.
TEMPERATURE_STEP = 0.3
# Of what is added: vLLM, llama.cpp and SGLang are known to accept 1.5; others may not.
HIGHEST_TEMPERATURE, ACCEPTED_TEMPERATURE = 1.5, 1.0


def temperature(configured: float, chat: Chat, highest: float) -> float:
    """Returns the sampling temperature: never below `configured`, and raised for repetitions up to `highest`.

    It rises as in the decoding of Whisper (Radford et al. 2022, section 4.5). Otherwise small models write the same
    turn again, whatever they are told and whatever the seed is.
    """
    return max(configured, min(configured + TEMPERATURE_STEP * chat.repetitions, highest))


def alternate(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Splits a conversation into the system prompt ("" without one) and strictly alternating turns without empty texts.

    Some chat templates and APIs refuse other conversations. Adjacent texts of a turn are joined with a line break,
    because templates differ in how they separate them.
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


def fold_system(system: str, turns: Sequence[Message]) -> list[Message]:
    """Puts the system prompt at the start of the first turn, for models that know no system role."""
    return alternate([Message(role=Role.USER, parts=(system,)), *turns])[1]


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
    # Experiments may print halves of surrogate pairs.
    return text.encode("utf-8", "replace").decode()


def text_tokens(text: str) -> int:
    """Estimates the tokens of a text."""
    return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN) + PART_TOKENS


def image_tokens(image: EncodedImage) -> int:
    """Estimates the tokens of an image from its area."""
    width, height = image.size
    return math.ceil(width * height / PIXELS_PER_TOKEN)


# Each turn of a conversation sends the images of the earlier ones again.
@cached(LRUCache(_PNG_BYTES, getsizeof=len), key=lambda image: image.data, lock=threading.Lock())
def base64_png(image: EncodedImage) -> str:
    """Returns the PNG file in base64."""
    return base64.b64encode(image.png).decode()


def openai_message(message: Message) -> dict[str, Any]:
    """Returns a message as OpenAI's chat completions API takes it, with images as `data:` URLs of PNG files."""
    return {"role": message.role.value, "content": _openai_content(message)}


def _openai_content(message: Message) -> str | list[dict[str, Any]]:
    # Some chat templates accept only strings.
    if message.role is Role.ASSISTANT or not message.images:
        return message.text
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_png(part)}"}}
        for part in message.parts
    ]
