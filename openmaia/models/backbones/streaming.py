"""Reads a streamed chat completion until the reply is complete, so that the server stops generating."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from openmaia.agent.tasks.ending import ending
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message
from openmaia.models.backbones.chat_format import image_tokens, text_tokens

CHECKED = 80
"""Number of new characters after which a reply that still arrives is checked again for whether it is complete."""


class StreamBroken(Exception):
    """Raised if the stream of a chat completion ended before the reply was complete."""


def read_stream(lines: Iterable[str], chat: Chat, sent: Sequence[Message]) -> str:
    """Reads the event stream of a chat completion, and returns the reply as a JSON text.

    The JSON text has the format of a response that is not streamed.

    Reading stops early in two cases: when the text repeats itself, and, if the reply is a turn of an investigation,
    after its first experiment (a code block that calls a tool). If an event reports an error or has an unknown format,
    this event is returned as JSON instead of the reply.

    Args:
        lines: The lines of the event stream.
        chat: The request, which says whether the reply is a turn.
        sent: The messages that were sent. The number of prompt tokens is estimated from them if the server does not
            send it.

    Raises:
        StreamBroken: If the connection was closed before the reply was complete.
    """
    texts: list[str] = []
    call = {"name": "", "arguments": ""}  # the first one: a turn has no others
    length = checked = 0
    finish, usage = "", {}
    for event in _events(lines):
        if event.get("error"):
            return json.dumps(event)
        try:
            usage = event.get("usage") or usage
            for choice in event.get("choices") or ():
                delta = choice.get("delta") or {}
                texts.append(text_content(delta.get("content")))
                length += len(texts[-1]) + _extend(call, delta.get("tool_calls") or ())
                finish = choice.get("finish_reason") or finish
        except (TypeError, AttributeError, KeyError):
            return json.dumps(event)  # is refused like any other answer of another form
        if length - checked >= CHECKED or (texts and "\n" in texts[-1]):
            checked = length
            if ending("".join(texts) or call["arguments"], chat.is_turn):
                finish = finish or "stop"
                break
    if not finish:
        raise StreamBroken("the connection was closed in the middle of the reply")
    text = "".join(texts)
    usage = {"prompt_tokens": _tokens(sent), "completion_tokens": text_tokens(text + call["arguments"]), **usage}
    message = {"content": text, "tool_calls": [{"function": call}] if any(call.values()) else []}
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})


def text_content(content: Any) -> str:
    """Returns the text in the field `content` of a chat completion, or "" if the field is empty.

    Args:
        content: The value of the field: a text, None, or a list of parts. Only parts of the type `text` are used.
    """
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""


def _extend(call: dict[str, str], pieces: Sequence[dict[str, Any]]) -> int:
    """Appends streamed pieces to the first function call, in place, and ignores further calls.

    Returns:
        The number of new characters of its arguments.
    """
    before = len(call["arguments"])
    for piece in pieces:
        if piece.get("index") in (None, 0):
            function = piece.get("function") or {}
            for name in call:
                value = function.get(name) or ""
                call[name] += value if isinstance(value, str) else json.dumps(value)
    return len(call["arguments"]) - before


def _events(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            try:
                event: Any = json.loads(data)
            except ValueError as error:
                raise StreamBroken(f"a part of the reply is no JSON ({error})") from error
            if isinstance(event, dict):
                yield event


def _tokens(messages: Sequence[Message]) -> int:
    parts = [part for message in messages for part in message.parts]
    return sum(image_tokens(part) if isinstance(part, EncodedImage) else text_tokens(part) for part in parts)
