"""Reads a streamed chat completion until the reply is complete, so that the server stops generating."""

import codecs
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from openmaia.agent.tasks.ending import ending
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message
from openmaia.models.backbones.chat_format import image_tokens, text_tokens
from openmaia.models.backbones.reasoning import STOPPED_READING, ReasoningStart
from openmaia.models.backbones.tool_calls import StreamedCalls

CHECKED = 80
"""New characters after which a reply that still arrives is checked again for whether it is complete."""

# Starts a line of an event stream. The field `error` is not in the standard; llama.cpp has it.
FIELD = re.compile(r"(?:data|event|id|retry|error)?:|(?:data|event|id|retry)$")

END = "[DONE]"

# In events without any part of a reply: why the server breaks it off.
STATED = {"message", "detail", "errors", "base_resp"}

# Some servers send it in two of them.
REASONING = ("reasoning_content", "reasoning", "thinking")


class StreamBroken(Exception):
    """The connection was closed before the reply was complete."""


class Unreadable(Exception):
    """A server sent something that is no part of a reply."""


def read_stream(
    chunks: Iterable[bytes], chat: Chat, sent: Sequence[Message], start: ReasoningStart | None = None, stop: str = ""
) -> str:
    """Reads the body of a chat completion, and returns it as JSON in the format of a response that is not streamed.

    A body that is no event stream is returned as it is: some servers stream no replies.

    Reading stops early when the text repeats itself, at `stop`, and, if the reply is a turn, after its first
    experiment; but never inside of reasoning. The finish reason is then STOPPED_READING. If an event reports an error, `{"error":
    …}` is returned. If no event has the format of the API, the first one is returned.

    Args:
        sent: The messages that were sent, for an estimate of the prompt's tokens if the server does not count them.
        start: What is known about the reasoning of the model.
        stop: A text at which the reply ends. It is not sent to the server, which would apply it to reasoning, too.

    Raises:
        StreamBroken: The connection was closed before the reply was complete.
        Unreadable: An event is not JSON, or has a field of another type than in the API.
    """
    reply = _Reply(chat, start or ReasoningStart(), stop)
    foreign = ""
    events = _events(chunks)
    try:
        for event in events:
            if isinstance(event, str):
                return event
            if (error := error_of(event)) and not reply.finish:
                return json.dumps({"error": error})
            if not any(event.get(name) for name in ("choices", "usage", END)):
                if reply.is_begun and not reply.finish and event.keys() & STATED:
                    raise Unreadable(f"the server broke it off with {json.dumps(event)}")
                foreign = foreign or json.dumps(event)
            if reply.extend(event):
                break
    except httpx2.TransportError as error:
        if not reply.finish:
            raise StreamBroken(str(error) or type(error).__name__) from error
    except httpx2.DecodingError as error:
        raise Unreadable(f"its compression is damaged ({error})") from error
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise Unreadable(f"an event of the stream has another form than in this API ({error!r})") from error
    if foreign and not reply.is_begun:
        return foreign
    if not reply.finish and not reply.is_counted:
        raise StreamBroken("the connection was closed in the middle of the reply")
    return reply.json(sent)


def error_of(answer: dict[str, Any]) -> Any:
    """Returns the error that a server reports with status 200, in a whole answer or in an event. None without one."""
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if error := answer.get("error") or (first.get("error") if isinstance(first, dict) else None):
        return error
    return answer if "error" in (answer.get("object"), answer.get("type")) and "choices" not in answer else None


def text_content(content: Any) -> str:
    """Returns the text of the field `content`: a text, None, or parts, of which those of the type `text` count."""
    return _parts(content, "text")


def reasoning_content(message: dict[str, Any]) -> str:
    """Returns the reasoning in a message or a piece of it: a field of its own, or parts of the type `thinking`."""
    given = [message.get(name) for name in REASONING]
    apart = next((_parts(value, "text") for value in given if value and isinstance(value, str | list)), "")
    content = message.get("content")
    return apart or (_parts(content, "thinking") if isinstance(content, list) else "")


def _parts(content: Any, kind: str) -> str:
    if not isinstance(content, str | list | None):
        raise TypeError(f"a text of the type {type(content).__name__}")
    if not isinstance(content, list):
        return content or ""
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts += [part] * (kind == "text")
        elif part.get("type", kind) in (kind, f"output_{kind}"):
            texts.append(_parts(part.get(kind), "text"))
    return "".join(texts)


@dataclass(slots=True)
class _Reply:
    chat: Chat
    start: ReasoningStart
    stop: str
    finish: str = ""
    is_begun: bool = False
    is_counted: bool = False  # the tokens of the whole reply: the last event before the end
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: StreamedCalls = field(default_factory=StreamedCalls)
    length: int = 0
    checked: int = 0

    def extend(self, event: dict[str, Any]) -> bool:
        """Appends the pieces in an event, and returns whether nothing more is needed."""
        self.usage = event.get("usage") or self.usage
        self.is_counted = self.is_begun and bool(event.get("usage")) and not event.get("choices")
        for choice in event.get("choices") or ():
            if choice.get("index") not in (None, 0, "0"):
                continue
            self.is_begun = True
            # Some servers send a whole reply in one event.
            delta = (choice["delta"] if "delta" in choice else choice.get("message")) or {}
            text = text_content(delta.get("content")) or delta.get("refusal") or ""
            self.texts.append(text)
            self.reasoning.append(reasoning_content(delta))
            self.length += len(text) + self.calls.extend(delta.get("tool_calls") or ())
            if choice.get("finish_reason") not in (None, "", "null"):
                self.finish = str(choice["finish_reason"])
        if event.get(END):
            self.finish = self.finish or "stop"
            return True
        return self._is_complete()

    def _is_complete(self) -> bool:
        if self.length - self.checked < CHECKED and not (self.texts and "\n" in self.texts[-1]):
            return False
        self.checked = self.length
        if text := "".join(self.texts):
            is_apart = any(self.reasoning)
            found = self.start.is_complete(text, is_turn=self.chat.is_turn, is_apart=is_apart, stop=self.stop)
        else:
            found = ending(self.calls.first["arguments"], is_turn=False) is not None
        if not found:
            return False
        self.finish = self.finish or STOPPED_READING
        return True

    def json(self, sent: Sequence[Message]) -> str:
        text, reasoning = "".join(self.texts), "".join(self.reasoning)
        call = self.calls.first
        generated = text_tokens(text + reasoning + call["arguments"])
        usage = {"prompt_tokens": _tokens(sent), "completion_tokens": generated, **self.usage}
        calls = [{"function": call}] if any(call.values()) else []
        message = {"content": text, REASONING[0]: reasoning, "tool_calls": calls}
        return json.dumps({"choices": [{"message": message, "finish_reason": self.finish or "stop"}], "usage": usage})


def _events(chunks: Iterable[bytes]) -> Iterator[dict[str, Any] | str]:
    # Lenient: a server may leave out the empty line that ends an event, or send two objects in one.
    lines = _lines(chunks)
    first = next((line for line in lines if line.strip()), "")
    if not FIELD.match(first):
        yield "\n".join([first, *lines])
        return
    name, data = "", list[str]()
    for line in _with_first(first, lines):
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line and key == "event":
            name = value
        elif line and key == "data":
            data.append(value)
        elif line and key == "error":
            name, data = key, [value]
        elif not line:
            yield from _decoded(name, "\n".join(data))
            name, data = "", []


def _with_first(first: str, lines: Iterable[str]) -> Iterator[str]:
    yield first
    yield from lines
    yield ""  # ends the last event, even if the server does not


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    # Not `splitlines`: a stream is UTF-8, and only LF, CR and CRLF end its lines.
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")("replace"), translate=True)
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from lines
    yield from (rest + decoder.decode(b"", final=True)).split("\n")


def _decoded(name: str, data: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    position = 0
    while data := data[position:].strip():
        if data.startswith(END):
            yield {END: True}
            return
        try:
            value, position = decoder.raw_decode(data)
        except (ValueError, RecursionError) as error:
            if name == "error":
                yield {"error": data}
                return
            if name not in ("", "message"):
                return  # an event of the server's own, such as one that keeps the connection open
            raise Unreadable(f"a part of it is no JSON ({error}): {data}") from error
        if name in ("done", "end"):
            yield {END: True}
        elif name == "error":
            yield {"error": value.get("error") or value if isinstance(value, dict) else str(value)}
        elif isinstance(value, dict):
            yield value
    if name == "error" and not position:
        yield {"error": "the server reports an error without a text"}


def _tokens(messages: Sequence[Message]) -> int:
    parts = [part for message in messages for part in message.parts]
    return sum(image_tokens(part) if isinstance(part, EncodedImage) else text_tokens(part) for part in parts)
