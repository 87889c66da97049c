"""A model server on this machine that speaks both APIs and fails as it is told to."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.http import QuietHandler, serving

Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it arrived. at: seconds of a monotonic clock."""

    path: str
    headers: dict[str, str]
    body: Body
    at: float

    @property
    def turns(self) -> list[Body]:
        return self.body["messages"]

    def texts(self) -> list[str]:
        """All texts of the turns, in order."""
        return [block["text"] for block in self._blocks() if block["type"] == "text"]

    def images(self) -> int:
        return sum(block["type"] in ("image", "image_url") for block in self._blocks())

    def _blocks(self) -> list[Body]:
        contents = [turn["content"] for turn in self.turns]
        return [b for c in contents for b in ([{"type": "text", "text": c}] if isinstance(c, str) else c)]


@dataclass(frozen=True, kw_only=True)
class Act:
    """What happens to one request. body: None for a proper answer. drop: the connection is closed without one.

    pieces: the reply is streamed in these pieces, `pause` seconds apart; without `ends` the connection breaks after them,
    in the middle of an event if `is_torn`.
    """

    status: int = 200
    body: Body | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: bool = False
    pieces: tuple[str, ...] = ()
    pause: float = 0.0
    ends: bool = True
    is_torn: bool = False


GOOD = Act()


@dataclass
class Server:
    """acts: one for each of the next requests; after them `otherwise` decides, by what is asked."""

    base: str
    acts: deque[Act] = field(default_factory=deque)
    otherwise: Callable[[Asked], Act] = lambda asked: GOOD
    asked: list[Asked] = field(default_factory=list)
    most_at_once: int = 0
    streamed: int = 0
    """Pieces that were sent in all."""
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def then(self, *acts: Act) -> None:
        self.acts.extend(acts)

    def act(self, asked: Asked) -> Act:
        with self._lock:
            self.asked.append(asked)
            return self.acts.popleft() if self.acts else self.otherwise(asked)

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1


@contextmanager
def misbehaving() -> Iterator[Server]:
    class Handler(_Handler): ...

    with serving(Handler) as address:
        Handler.story = Server(base=address)
        yield Handler.story


class _Handler(QuietHandler):
    story: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        story = self.story
        with story.counted():
            data = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(path=self.path, headers=headers, body=json.loads(data), at=time.monotonic())
            act = story.act(asked)
            time.sleep(act.delay)
            if act.drop:
                self.close_connection = True
                return
            if act.pieces:
                self._stream(act, story)
                return
            body = act.body if act.body is not None else answer(asked)
        self._answer(act, body if isinstance(body, str) else json.dumps(body))

    def _answer(self, act: Act, body: str) -> None:
        kind = "text/html" if body.startswith("<") else "application/json"
        data = body.encode()
        try:
            self.send_response(act.status)
            for name, value in {"content-type": kind, **act.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            pass  # a client that has waited for long enough

    def _stream(self, act: Act, story: Server) -> None:
        self.close_connection = True
        try:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in act.pieces:
                self._event({"choices": [{"delta": {"content": piece}, "finish_reason": None}]})
                story.streamed += 1
                time.sleep(act.pause)
            if act.is_torn:
                self._chunk(b'data: {"choices": [{"del\n\n')
                self._chunk(b"")
            elif act.ends:
                self._event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
                self._event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 22}})
                self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")
        except ConnectionError:
            pass  # the client has read enough

    def _event(self, event: Body) -> None:
        self._chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def answer(asked: Asked, text: str | None = None, ended: str | None = None, usage: Body | None = None) -> Body:
    """A proper one; without `text` it repeats the last text of the request."""
    text = f"heard: {asked.texts()[-1]}" if text is None else text
    if asked.path.endswith("/chat/completions"):
        message = {"role": "assistant", "content": text}
        return {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": asked.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": ended or "stop"}],
            "usage": usage or {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
        }
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": ended or "end_turn",
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 11, "output_tokens": 3},
    }
