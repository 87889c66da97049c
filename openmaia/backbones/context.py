"""Makes a conversation fit a model's context. What goes first: the oldest images, then the oldest experiment outputs.

Both go in blocks, and how many go depends on the conversation only: as it grows, the same cut stays for several turns, and
a prefix cache keeps what it holds. The task and the latest turns stay.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from openmaia.errors import ServiceError
from openmaia.images import Picture
from openmaia.messages import Message, Part, Role

LATEST = 4
"""Messages at the end that stay: two turns, each a reply and its observation."""

OPENING = 2
"""Messages at the start that stay: what the agent is told, and its task."""

OUTPUTS = 4
"""Experiment outputs go in blocks of so many."""

NO_IMAGE = "(an image was here)"
NO_OUTPUT = "(the output of this experiment was here; it was left out to save room)"


@dataclass(frozen=True, slots=True)
class Fitted:
    messages: list[Message]
    left_out: str
    """In words, for the record; empty where everything fitted."""


def fit(
    messages: Sequence[Message],
    *,
    room: int,
    images: int,
    text_tokens: Callable[[str], int],
    image_tokens: Callable[[Picture], int],
) -> Fitted:
    """room: tokens for all messages together; images: at most so many of them.

    Raises ServiceError where the task and the latest turns alone are too long.
    """
    cost = _Cost(text_tokens, image_tokens)
    shown = [picture for message in messages for picture in message.pictures]
    largest = max(map(image_tokens, shown), default=1)
    block = max(min(images, room // max(largest, 1)) // 4, 1)
    for candidate, left_out in _cuts(messages, block):
        pictures = sum(len(message.pictures) for message in candidate)
        if pictures <= images and sum(map(cost.of, candidate)) <= room:
            return Fitted(candidate, left_out)
    raise ServiceError(
        f"the task and the latest turns of a conversation need more than the {room} tokens that "
        "backbone.context_tokens leaves beside limits.reply_tokens; raise the one or lower the other"
    )


def _cuts(messages: Sequence[Message], block: int) -> Iterator[tuple[list[Message], str]]:
    """Shorter and shorter conversations, and what each lost."""
    outputs = [i for i in range(OPENING, len(messages) - LATEST) if messages[i].role is Role.USER]
    older = sum(len(message.pictures) for message in messages[:-LATEST])
    for dropped in range(0, older + block, block):
        yield _blind(messages, min(dropped, older)), _said(min(dropped, older), 0)
    blind = _blind(messages, older)
    for silenced in range(OUTPUTS, len(outputs) + OUTPUTS, OUTPUTS):
        gone = outputs[:silenced]
        yield [_silent(m) if i in gone else m for i, m in enumerate(blind)], _said(older, len(gone))
    # Nothing but the latest turns is left. An agent that shows itself more images than fit sees the last of them.
    short = [_silent(m) if i in outputs else m for i, m in enumerate(blind)]
    for dropped in range(1, sum(len(message.pictures) for message in short) + 1):
        yield _blind(short, dropped), _said(older + dropped, len(outputs))


class _Cost:
    def __init__(self, text_tokens: Callable[[str], int], image_tokens: Callable[[Picture], int]):
        self._text, self._image = text_tokens, image_tokens
        self._known: dict[str, int] = {}

    def of(self, message: Message) -> int:
        return sum(map(self._part, message.parts))

    def _part(self, part: Part) -> int:
        if isinstance(part, Picture):
            return self._image(part)
        if part not in self._known:
            self._known[part] = self._text(part)
        return self._known[part]


def _silent(message: Message) -> Message:
    return replace(message, parts=(NO_OUTPUT,))


def _blind(messages: Sequence[Message], dropped: int) -> list[Message]:
    """Without its first images, a note in the place of each."""
    left = dropped
    result: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, Picture) and left > 0:
                left -= 1
                parts.append(NO_IMAGE)
            else:
                parts.append(part)
        result.append(replace(message, parts=tuple(parts)))
    return result


def _said(images: int, outputs: int) -> str:
    said = [f"its oldest {images} images"] if images else []
    said += [f"its oldest {outputs} experiment outputs"] if outputs else []
    return " and ".join(said)
