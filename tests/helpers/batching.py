"""A server with the batch interfaces of OpenAI and Anthropic."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.helpers.http import QuietHandler, serving
from tests.helpers.misbehaving import Asked, answer

Body = dict[str, Any]

PAGE = 3
"""Batches of a page, where a list of them is asked for: both APIs have at most 100."""


@dataclass
class SentBatch:
    id: str
    requests: dict[str, Body]
    """Bodies by custom id."""
    metadata: Body
    is_anthropic: bool
    created: float = field(default_factory=time.time)
    ends: str = "completed"
    """As in OpenAI's API: `completed`, `expired`, `cancelled`, `failed`, or `in_progress`."""
    fates: dict[str, str] = field(default_factory=dict[str, str])
    """What becomes of single requests: `expired`, `cancelled`, `refused` or `lost`; the others are answered."""


@dataclass
class BatchingServer:
    base: str
    say: Callable[[str], str] = lambda text: f"heard: {text}"
    plan: Callable[[SentBatch], None] = lambda batch: None
    """Decides what becomes of a batch when it arrives."""
    is_open: bool = True
    """If not, the connection is closed without an answer, after the request has been carried out."""
    batches: dict[str, SentBatch] = field(default_factory=dict[str, SentBatch])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    singly: list[Body] = field(default_factory=list[Body])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def sent(self) -> list[str]:
        """The ids of all requests in all batches."""
        return [key for batch in self.batches.values() for key in batch.requests]

    def begin(self, requests: dict[str, Body], metadata: Body, *, is_anthropic: bool) -> SentBatch:
        with self._lock:
            batch = SentBatch(f"batch_{len(self.batches)}", requests, metadata, is_anthropic)
            self.plan(batch)
            self.batches[batch.id] = batch
            return batch

    def answer(self, body: Body, path: str) -> Body:
        asked = Asked(path=path, headers={}, body=body, at=0.0)
        return answer(asked, self.say(asked.texts()[-1]))

    def lines(self, batch: SentBatch) -> list[Body]:
        """Results in the reverse order."""
        write = self._anthropic_line if batch.is_anthropic else self._openai_line
        found = [write(key, body, batch.fates.get(key, "")) for key, body in reversed(batch.requests.items())]
        return [line for line in found if line]

    def _openai_line(self, key: str, body: Body, fate: str) -> Body:
        line: Body = {"id": "r", "custom_id": key, "response": None, "error": None}
        match fate:
            case "lost":
                return {}
            case "expired" | "cancelled":
                return line | {"error": {"code": f"batch_{fate}", "message": "it was not executed"}}
            case "refused":
                refusal = {"error": {"message": "too odd", "type": "invalid_request_error"}}
                return line | {"response": {"status_code": 400, "request_id": "q", "body": refusal}}
            case _:
                done = self.answer(body, "/v1/chat/completions")
                return line | {"response": {"status_code": 200, "request_id": "q", "body": done}}

    def _anthropic_line(self, key: str, body: Body, fate: str) -> Body:
        match fate:
            case "lost":
                return {}
            case "expired":
                result: Body = {"type": "expired"}
            case "cancelled":
                result = {"type": "canceled"}
            case "refused":
                problem = {"type": "invalid_request_error", "message": "too odd"}
                result = {"type": "errored", "error": {"type": "error", "error": problem, "request_id": None}}
            case _:
                result = {"type": "succeeded", "message": self.answer(body, "/v1/messages")}
        return {"custom_id": key, "result": result}

    def shown(self, batch: SentBatch) -> Body:
        if batch.is_anthropic:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(batch.created))
            counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
            is_over = batch.ends != "in_progress"
            counts["succeeded" if is_over else "processing"] = len(batch.requests)
            return {
                "id": batch.id,
                "type": "message_batch",
                "processing_status": "ended" if is_over else "in_progress",
                "request_counts": counts,
                "created_at": at,
                "expires_at": at,
                "archived_at": None,
                "cancel_initiated_at": None,
                "ended_at": at if is_over else None,
                "results_url": f"{self.base}/v1/messages/batches/{batch.id}/results" if is_over else None,
            }
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": "f",
            "completion_window": "24h",
            "created_at": int(batch.created),
            "status": batch.ends,
            "metadata": batch.metadata,
            "output_file_id": f"out-{batch.id}" if batch.ends not in ("in_progress", "failed") else None,
            "error_file_id": f"err-{batch.id}" if batch.fates else None,
            "errors": {"data": [{"message": "no such model"}]} if batch.ends == "failed" else None,
        }


@contextmanager
def batching() -> Iterator[BatchingServer]:
    class Handler(_Handler): ...

    with serving(Handler) as address:
        Handler.story = BatchingServer(base=address)
        yield Handler.story


class _Handler(QuietHandler):
    story: BatchingServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        data, story = self.rfile.read(int(self.headers["content-length"])), self.story
        match self.path.strip("/").split("/"):
            case ["v1", "files"]:
                name = f"file-{len(story.files)}"
                found = re.search(rb'filename="[^"]*"\r\n.*?\r\n\r\n(.*?)\r\n--', data, re.DOTALL)
                assert found and b'name="purpose"\r\n\r\nbatch' in data
                story.files[name] = found[1]
                self._say(
                    {"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "f", "purpose": "batch"}
                )
            case ["v1", "batches"]:
                asked = json.loads(data)
                lines = [json.loads(line) for line in story.files[asked["input_file_id"]].splitlines()]
                assert {(line["method"], line["url"]) for line in lines} == {("POST", "/v1/chat/completions")}
                requests = {line["custom_id"]: line["body"] for line in lines}
                self._say(story.shown(story.begin(requests, asked["metadata"], is_anthropic=False)))
            case ["v1", "messages", "batches"]:
                requests = {each["custom_id"]: each["params"] for each in json.loads(data)["requests"]}
                self._say(story.shown(story.begin(requests, {}, is_anthropic=True)))
            case _:
                body = json.loads(data)
                story.singly.append(body)
                self._say(story.answer(body, self.path))

    def do_GET(self) -> None:
        story = self.story
        match self.path.partition("?")[0].strip("/").split("/"):
            case ["v1", "files", name, "content"]:
                kind, _, batch = name.partition("-")
                lines = [(line, line.get("error") is not None) for line in story.lines(story.batches[batch])]
                self._say("".join(json.dumps(line) + "\n" for line, is_error in lines if is_error == (kind == "err")))
            case ["v1", *_, "batches"]:
                asked = parse_qs(urlsplit(self.path).query)
                newest = list(reversed(story.batches))
                after = (asked.get("after") or asked.get("after_id") or [""])[0]
                left = newest[newest.index(after) + 1 :] if after else newest
                page = left[: min(PAGE, int(asked["limit"][0]))]
                more = {"has_more": len(left) > len(page), "first_id": page[0] if page else None}
                data = [story.shown(story.batches[each]) for each in page]
                self._say({"object": "list", "data": data, "last_id": page[-1] if page else None, **more})
            case ["v1", "messages", "batches", batch, "results"]:
                self._say("".join(json.dumps(line) + "\n" for line in story.lines(story.batches[batch])))
            case [*_, batch]:
                self._say(story.shown(story.batches[batch]))

    def _say(self, body: Body | str) -> None:
        if not self.story.is_open:
            self.close_connection = True
            return
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/x-jsonl" if isinstance(body, str) else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
