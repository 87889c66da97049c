"""A model server on this machine that speaks both APIs and fails as it is told to."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
    """What happens to one request. body: None for a proper answer. drop: the connection is closed without one."""

    status: int = 200
    body: Body | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: bool = False


GOOD = Act()


@dataclass
class Server:
    """acts: one for each of the next requests; after them `otherwise` decides, by what is asked."""

    base: str
    acts: deque[Act] = field(default_factory=deque)
    otherwise: Callable[[Asked], Act] = lambda asked: GOOD
    asked: list[Asked] = field(default_factory=list)
    most_at_once: int = 0
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
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    server = Server(base=f"http://127.0.0.1:{http.server_address[1]}")
    http.story = server  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        story: Server = self.server.story  # pyright: ignore[reportAttributeAccessIssue]
        with story.counted():
            data = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(path=self.path, headers=headers, body=json.loads(data), at=time.monotonic())
            act = story.act(asked)
            time.sleep(act.delay)
            if act.drop:
                self.close_connection = True
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

    def log_message(self, format: str, *args: Any) -> None:
        pass


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
