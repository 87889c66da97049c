"""Sends requests that nobody waits for as batches, which servers answer within a day and at a lower price.

Chats that are asked at about the same time, by any thread, are one batch. The id of a batch is stored before anybody waits for
it, and its answers are stored when it has ended, so that nothing is paid twice if the process dies.
"""

import hashlib
import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol
from uuid import uuid4

from openmaia.core.documents import parse_json
from openmaia.core.errors import OpenMaiaError, ServiceError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply
from openmaia.core.money import FREE, Bill
from openmaia.core.typed import find_mistyped
from openmaia.models.backbones.failures import Failure
from openmaia.models.settling import settle

PRICE_SHARE = 0.5
"""What a request in a batch costs of the price of others, at OpenAI and Anthropic (their documentation, 2025)."""
LINGER_SECONDS = 1.0
"""A batch is sent when no chat came for so long."""
POLL_SECONDS = 60.0
"""Between two questions for the state of batches, at most. They begin with LINGER_SECONDS and become rarer."""
MOST_REQUESTS, MOST_BYTES = 10_000, 90_000_000
"""Of a batch. OpenAI takes 50,000 and 200 MB, Anthropic 100,000 and 256 MB."""
_KEPT = {
    "text": str,
    "reasoning": str,
    "prompt_tokens": int,
    "cached_tokens": int,
    "written_tokens": int,
    "generated_tokens": int,
}
"""What is stored of a reply without a batch."""
CLOCKS_DIFFER = 300.0
"""Seconds by which the clocks of this machine and of a server may differ."""
MOST_LISTED = 10_000
"""Batches among which one is looked for whose id was lost."""
_TRIES = 3
"""Batches in which a request is sent if they expire before it is answered."""


class Unanswered(Enum):
    """Why a batch has no answer to a request."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class BatchState:
    """What a server says of a batch. `is_over`: it will answer nothing more. `problem`: why it took no request at all."""

    is_over: bool
    problem: str = ""


class BatchServer(Protocol):
    """A server that takes batches. All methods raise OpenMaiaError."""

    @property
    def batch_model(self) -> str:
        """What else than the chat an answer depends on."""
        ...

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Answers chats without a batch."""
        ...

    def batch_body(self, chat: Chat) -> dict[str, Any]:
        """Returns the request of a chat."""
        ...

    def batch_reply(self, chat: Chat, body: str) -> Reply | Failure:
        """Reads an answer, whose bill is that of a request without a batch."""
        ...

    def submit_batch(self, name: str, bodies: Mapping[str, dict[str, Any]]) -> str:
        """Sends a batch of requests by their ids. Returns the id of the batch."""
        ...

    def find_batch(self, name: str, requests: Sequence[str], since: float, known: Collection[str]) -> str:
        """Returns the id of a batch that was perhaps sent after `since`, in seconds since 1970. Empty: it was not. `known` are the
        ids of others."""
        ...

    def batch_state(self, batch: str) -> BatchState:
        """Asks for the state of a batch."""
        ...

    def batch_answers(self, batch: str) -> Iterator[tuple[str, str | Failure | Unanswered]]:
        """Yields (id of the request, body of the answer or why there is none) of a batch that is over, in any order."""
        ...


class BatchStore(Protocol):
    """Keeps files by name."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a file as a whole."""
        ...

    def read(self, name: str) -> bytes | None:
        """Returns its content; None if there is no such file."""
        ...

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, with the folder."""
        ...

    def delete(self, name: str) -> None:
        """Deletes a file."""
        ...


@dataclass(slots=True)
class _Batch:
    name: str
    requests: list[str]
    since: float
    id: str = ""

    def to_json(self) -> bytes:
        return json.dumps({"id": self.id, "since": self.since, "requests": self.requests}).encode()


@dataclass(slots=True)
class _Asked:
    chat: Chat
    futures: list[Future[Reply]] = field(default_factory=list[Future[Reply]])
    began: float = field(default_factory=time.monotonic)
    tries: int = 0
    owed: Bill = FREE
    """For an answer that was of no use."""


class BatchedBackbone:
    """A backbone whose chats are sent in batches. Thread-safe. One request goes ahead of the first batch: what the server
    refuses of it, is left out of the others."""

    def __init__(
        self,
        server: BatchServer,
        store: BatchStore,
        folder: str = "batches",
        linger: float = LINGER_SECONDS,
        poll: float = POLL_SECONDS,
    ):
        """Goes on with the batches that an earlier process has left in a folder of a store. Does not connect."""
        self._server, self._store, self._folder = server, store, folder
        self._linger, self._poll = linger, poll
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}
        self._queue: list[str] = []
        self._added = 0.0
        self._open: dict[str, _Batch] = {}
        self._under_way: set[str] = set()
        """The requests of these."""
        self._known: dict[str, str] = {}
        """Bodies of answers, by request."""
        self._alone: dict[str, Reply] = {}
        """Replies without a batch, which are paid."""
        self._paid: set[str] = set()
        """Requests whose answers were paid: by an earlier process, or when they were first given."""
        self._worker: threading.Thread | None = None
        self._went_ahead = False
        self._answered: set[str] = set()
        """The batches that an earlier process has ended."""
        self._singly = ThreadPoolExecutor(8)
        for path in sorted(store.names(folder), key=lambda path: not path.endswith(".answers.json")):
            self._load(path)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Waits until all are answered, for up to a day.

        Raises:
            ServiceUnavailable: The server cannot be reached. What it has taken is not lost: the same chats go on waiting.
            ServiceError: It gave no usable reply, or the batch was cancelled.
            UsageError: It rejects the API key, the model or the address.
        """
        return settle([self._ask(chat) for chat in chats])

    def _load(self, path: str) -> None:
        stem, _, kind = path.rpartition("/")[2].partition(".")
        try:
            stored: Any = parse_json(self._store.read(path) or b"null")
        except ValueError:
            stored = None
        if kind == "answers.json":
            if find_mistyped(stored, dict[str, str]) is None:
                self._known |= stored
                self._paid |= stored.keys()
                self._answered.add(stem)
        elif kind == "alone.json":
            if isinstance(stored, dict) and all(type(stored.get(name)) is form for name, form in _KEPT.items()):
                self._alone[stem] = Reply(**{name: stored[name] for name in _KEPT})
        elif kind == "json" and stem not in self._answered:  # damaged answers are fetched again
            form = {"id": str, "since": float, "requests": list[str]}
            if not isinstance(stored, dict) or any(
                find_mistyped(stored.get(k), t) is not None for k, t in form.items()
            ):
                raise ServiceError(
                    f"{path} is damaged, and with it the id of a batch that may be under way; remove it to pay again"
                )
            self._begin(_Batch(stem, stored["requests"], stored["since"], stored["id"]))

    def _begin(self, batch: _Batch) -> None:
        with self._lock:
            self._open[batch.name] = batch
            self._under_way.update(batch.requests)

    def _end(self, batch: _Batch) -> list[str]:
        """Returns the requests whose answers somebody waits for."""
        with self._lock:
            del self._open[batch.name]
            self._under_way.difference_update(batch.requests)
            return [key for key in batch.requests if key in self._asked]

    def _ask(self, chat: Chat) -> Future[Reply]:
        key, future = request_id(chat, self._server.batch_model), Future[Reply]()
        future.set_running_or_notify_cancel()
        with self._lock:
            if key in self._alone:
                future.set_result(self._alone[key])
                return future
            asked = self._asked.setdefault(key, _Asked(chat))
            asked.futures.append(future)
            if len(asked.futures) == 1 and key not in self._known and key not in self._under_way:
                self._queue.append(key)
            self._added = time.monotonic()
            if self._worker is None:
                # A daemon, as a command that is stopped does not wait for a day.
                self._worker = threading.Thread(target=self._work, name="batches", daemon=True)
                self._worker.start()
        return future

    # -- the thread that sends and asks ------------------------------------------------------------------------------

    def _work(self) -> None:
        next_poll, pause = 0.0, self._linger
        while True:
            with self._lock:
                if not self._asked:
                    self._worker = None
                    return
                known = [key for key in self._asked if key in self._known]
                is_due = bool(self._queue) and time.monotonic() >= self._added + self._linger
            try:
                for key in known:
                    self._give(key, self._known[key])
                if is_due:
                    self._send()
                    next_poll, pause = time.monotonic() + self._linger, self._linger
                if time.monotonic() >= next_poll:
                    for batch in list(self._open.values()):
                        self._look(batch)
                    next_poll, pause = time.monotonic() + pause, min(1.5 * pause, self._poll)
            except OpenMaiaError as error:
                self._fail(list(self._asked), error)
            except Exception as error:
                self._fail(list(self._asked), ServiceError(f"a batch could not be handled: {error!r}"))
            time.sleep(min(self._linger, self._poll) / 4)

    def _send(self) -> None:
        with self._lock:
            queue, self._queue = self._queue, []
            queue = [key for key in queue if key in self._asked]
        if queue and not self._went_ahead:
            first, *queue = queue
            self._answer_alone(first)
            self._went_ahead = True
        for batch, bodies in self._divided(queue):
            self._begin(batch)
            path = f"{self._folder}/{batch.name}.json"
            self._store.write(path, batch.to_json())  # before it is sent: the process may die in between
            try:
                batch.id = self._server.submit_batch(batch.name, bodies)
            except OpenMaiaError:
                if not self._find(batch):
                    raise
            self._store.write(path, batch.to_json())
            for key in batch.requests:
                if key in self._asked:
                    self._asked[key].tries += 1

    def _divided(self, queue: Sequence[str]) -> Iterator[tuple[_Batch, dict[str, dict[str, Any]]]]:
        bodies: dict[str, dict[str, Any]] = {}
        size = 0
        for key in queue:
            try:
                body = self._server.batch_body(self._asked[key].chat)
            except OpenMaiaError as error:  # it is too long, which is no fault of the others
                self._fail([key], error)
                continue
            length = len(json.dumps(body))
            if bodies and (len(bodies) >= MOST_REQUESTS or size + length > MOST_BYTES):
                yield _Batch(uuid4().hex, list(bodies), time.time()), bodies
                bodies, size = {}, 0
            bodies[key], size = body, size + length
        if bodies:
            yield _Batch(uuid4().hex, list(bodies), time.time()), bodies

    def _find(self, batch: _Batch) -> bool:
        """Looks for a batch whose id is not known. If it was not sent, its requests wait for another one."""
        known = {each.id for each in self._open.values()}
        batch.id = self._server.find_batch(batch.name, batch.requests, batch.since, known)
        if batch.id:
            self._store.write(f"{self._folder}/{batch.name}.json", batch.to_json())
            return True
        self._store.delete(f"{self._folder}/{batch.name}.json")
        waiting = self._end(batch)
        with self._lock:
            self._queue += waiting
        return False

    def _look(self, batch: _Batch) -> None:
        if not batch.id and not self._find(batch):
            return
        state = self._server.batch_state(batch.id)
        if not state.is_over:
            return
        answers = {} if state.problem else dict(self._server.batch_answers(batch.id))
        bodies = {key: answer for key, answer in answers.items() if isinstance(answer, str)}
        self._store.write(f"{self._folder}/{batch.name}.answers.json", json.dumps(bodies).encode())
        with self._lock:
            self._known |= bodies
        waiting = self._end(batch)
        if state.problem:
            self._fail(waiting, ServiceError(f"the batch {batch.id} was not taken: {state.problem}"))
            return
        for key in waiting:
            self._settle(batch, key, answers.get(key))

    def _settle(self, batch: _Batch, key: str, answer: str | Failure | Unanswered | None) -> None:
        if isinstance(answer, str):
            self._give(key, answer)
        elif answer is Unanswered.CANCELLED:
            text = f"the batch {batch.id} was cancelled at the server; the same command sends in a new one what it left unanswered"
            self._fail([key], ServiceError(text))
        elif answer is Unanswered.EXPIRED and self._asked[key].tries < _TRIES:
            with self._lock:
                self._queue.append(key)
        else:
            # Refused for its form, its length, or for now: a request without a batch finds out, and says so.
            self._singly.submit(self._answer_alone, key)

    def _answer_alone(self, key: str) -> None:
        with self._lock:
            asked = self._asked.get(key)
        if asked is None:
            return  # the server became unavailable meanwhile
        try:
            reply = self._server.reply([asked.chat])[0]
            kept = {name: getattr(reply, name) for name in _KEPT}
            self._store.write(f"{self._folder}/{key}.alone.json", json.dumps(kept).encode())
            self._alone[key] = Reply(**kept)
            self._done(key, reply)
        except OpenMaiaError as error:
            self._fail([key], error)
        except Exception as error:
            self._fail([key], ServiceError(f"a request could not be handled: {error!r}"))

    def _give(self, key: str, body: str) -> None:
        try:
            reply = self._server.batch_reply(self._asked[key].chat, body)
        except OpenMaiaError as error:  # it is empty or cannot be read, and would be so each time
            self._asked[key].owed += self._price(key, error.bill)
            reply = None
        if not isinstance(reply, Reply):
            del self._known[key]
            self._singly.submit(self._answer_alone, key)
            return
        self._done(key, replace(reply, bill=self._price(key, reply.bill)))

    def _price(self, key: str, bill: Bill) -> Bill:
        if key in self._paid:
            return FREE
        self._paid.add(key)
        return Bill(bill.dollars * PRICE_SHARE, bill.unpriced)

    def _done(self, key: str, reply: Reply) -> None:
        with self._lock:
            asked = self._asked.pop(key, None)
        for number, future in enumerate(asked.futures if asked else ()):
            waited = time.monotonic() - asked.began if asked else 0.0
            bill = FREE if number or not asked else reply.bill + asked.owed
            future.set_result(replace(reply, waited=waited, bill=bill))

    def _fail(self, keys: Sequence[str], error: OpenMaiaError) -> None:
        for key in keys:
            with self._lock:
                asked = self._asked.pop(key, None)
                self._queue = [each for each in self._queue if each != key]
            for number, future in enumerate(asked.futures if asked else ()):
                # Each caller adds to its exception.
                own = type(error)(error.message, detail=error.detail)
                own.bill = FREE if number or not asked else error.bill + asked.owed
                future.set_exception(own)


def request_id(chat: Chat, model: str) -> str:
    """Returns the id of a request: equal for chats that ask the same of a model with the same seed."""
    parts = [
        [message.role.value, *(part.digest if isinstance(part, EncodedImage) else [part] for part in message.parts)]
        for message in chat.messages
    ]
    asked = [model, parts, chat.seed, chat.max_tokens, chat.repetitions]
    return hashlib.sha256(json.dumps(asked).encode(errors="surrogatepass")).hexdigest()[:40]
