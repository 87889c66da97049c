"""Shortens a conversation to a model's context: the oldest images go first, then the oldest outputs of experiments.

Both go in blocks, so that the beginning of a growing conversation changes only every few turns, and a prefix cache
remains valid in between. The task and the latest turns are kept. If they alone are too long, the middle of the latest
outputs is left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from openmaia.core.errors import ServiceError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Message, Part, Role

LATEST = 4  # messages: two turns, each a reply and its output

OPENING = 2  # messages: the system prompt and the task

OUTPUT_BLOCK = 4  # outputs that go together

# Characters of an output in the latest turns. The first is tried before their images go, the others after.
SHORTENED = (16_000, 4_000, 1_000)

IMAGE_LEFT_OUT = "(an image was here)"
NO_OUTPUT = "(the output of this experiment was here; it was left out to save room)"


@dataclass(frozen=True, slots=True)
class FittedChat:
    """A conversation that fits."""

    messages: list[Message]
    left_out: str
    """What was removed, in words. Empty if nothing was."""


def fit(
    messages: Sequence[Message],
    *,
    room: int,
    images: int,
    text_tokens: Callable[[str], int],
    image_tokens: Callable[[EncodedImage], int],
) -> FittedChat:
    """Removes images and outputs until a conversation has at most `room` tokens and `images` images.

    Raises:
        ServiceError: It is still too long when nothing more can be left out.
    """

    def tokens(message: Message) -> int:
        return sum(image_tokens(p) if isinstance(p, EncodedImage) else text_tokens(p) for p in message.parts)

    largest = max((image_tokens(image) for message in messages for image in message.images), default=1)
    block = max(min(images, room // max(largest, 1)) // 4, 1)
    for candidate, left_out in _cuts(messages, block):
        shown = sum(len(message.images) for message in candidate)
        if shown <= images and sum(map(tokens, candidate)) <= room:
            return FittedChat(candidate, left_out)
    raise ServiceError(
        f"the task and the latest turns of a conversation need more than the {room} tokens that "
        "backbone.context_tokens leaves beside limits.reply_tokens; raise the one or lower the other"
    )


def _cuts(messages: Sequence[Message], block: int) -> Iterator[tuple[list[Message], str]]:
    """Yields ever shorter versions, each with what it lacks in words. `block` images go together."""
    outputs = [i for i in range(OPENING, len(messages) - LATEST) if messages[i].role is Role.USER]
    older = sum(len(message.images) for message in messages[:-LATEST])
    for dropped in range(0, older + block, block):
        yield _without_images(messages, min(dropped, older)), _description(min(dropped, older), 0)
    short = _without_images(messages, older)
    for count in range(OUTPUT_BLOCK, len(outputs) + OUTPUT_BLOCK, OUTPUT_BLOCK):
        removed = outputs[:count]
        yield _without_outputs(short, removed), _description(older, len(removed))
    # Now only the latest turns have images. If an agent has displayed more than fit, its last ones are kept.
    short = _without_outputs(short, outputs)
    latest = sum(len(message.images) for message in short)
    is_long = any(_is_output(i, m) and len(part) > SHORTENED[0] for i, m in enumerate(short) for part in _texts(m))
    length = SHORTENED[0] if is_long else 0
    for dropped in range(0 if is_long else 1, latest + 1):
        yield _shortened(_without_images(short, dropped), length), _description(older + dropped, len(outputs), length)
    for length in SHORTENED[1:]:
        yield _shortened(_without_images(short, latest), length), _description(older + latest, len(outputs), length)


def _is_output(index: int, message: Message) -> bool:
    return index >= OPENING and message.role is Role.USER


def _texts(message: Message) -> list[str]:
    return [part for part in message.parts if isinstance(part, str)]


def _shortened(messages: Sequence[Message], length: int) -> list[Message]:
    """Replaces the middle of each longer text of an output by a note. 0: nothing is shortened."""
    return [
        replace(message, parts=tuple(_shortened_part(part, length) for part in message.parts))
        if length and _is_output(i, message)
        else message
        for i, message in enumerate(messages)
    ]


def _shortened_part(part: Part, length: int) -> Part:
    if not isinstance(part, str) or len(part) <= length:
        return part
    left_out = f"({len(part) - length} characters were here; they were left out to save room)"
    return f"{part[: length // 2]}\n{left_out}\n{part[-(length // 2) :]}"


def _without_outputs(messages: Sequence[Message], indices: Sequence[int]) -> list[Message]:
    return [replace(m, parts=(NO_OUTPUT,)) if i in indices else m for i, m in enumerate(messages)]


def _without_images(messages: Sequence[Message], dropped: int) -> list[Message]:
    left = dropped
    result: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, EncodedImage) and left > 0:
                left -= 1
                parts.append(IMAGE_LEFT_OUT)
            else:
                parts.append(part)
        result.append(replace(message, parts=tuple(parts)))
    return result


def _description(images: int, outputs: int, length: int = 0) -> str:
    removed = [f"its oldest {images} images"] if images else []
    removed += [f"its oldest {outputs} experiment outputs"] if outputs else []
    removed += [f"the middle of outputs above {length} characters"] if length else []
    return " and ".join(removed)
