"""The process in which wandb runs, beside the driver: whatever becomes of wandb, the driver never waits for it.

Started by `tracker.start` with one socket. It ends when it is told to or when the driver is gone, and finishes the W&B run
in both cases.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from openmaia.errors import OpenMaiaError, StoreError
from openmaia.figures.agents import agents
from openmaia.schema import TrackingConfig
from openmaia.store.run import Run
from openmaia.tracking import rows
from openmaia.tracking.ledger import Key, Ledger
from openmaia.tracking.messages import Ended, Message, Progress, Sample
from openmaia.tracking.series import Series, plain
from openmaia.tracking.wandb_run import WandbRun

GATHER = 1.0
"""Seconds in which messages are gathered before they are told, and the ledger is written once for all of them."""
BATCH = 1000
PICTURES = 500
"""Rows of the table that have thumbnails: the first so many."""
FIRST_TABLE = 10
"""The table is told at so many units, at twice as many and so on, and at the end: W&B keeps every one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """root: the run directory. config: resolved, as W&B shall show it. folder: for wandb's files. max_batch: by pool."""

    root: str
    name: str
    tracking: TrackingConfig
    config: Mapping[str, Any]
    folder: str
    max_batch: Mapping[str, int]


class Follower:
    def __init__(self, given: Given, connection: Connection):
        self._given, self._connection = given, connection
        self._run = Run.open(given.root)
        self._ledger = Ledger.open(self._run.files, given.name)
        self._series = Series(given.max_batch)
        self._headers: dict[Key, rows.Header] = {}
        self._pictures: dict[Key, bytes] = {}
        self._pointed = 0.0
        self._next_table = FIRST_TABLE
        self._is_over = False
        self._wandb = WandbRun(given.tracking, self._ledger, given.name, given.config, given.folder)
        self._ledger.note()

    def follow(self) -> None:
        """Until the end. What goes wrong is reported, and the next is tried."""
        tried(self._go_on, self._connection)
        while not self._is_over:
            batch = self._batch()
            tried(lambda batch=batch: self._tell(batch), self._connection)
        tried(self._finish, self._connection)

    def _batch(self) -> list[Message]:
        found: list[Message] = []
        until = time.monotonic() + GATHER
        while not self._is_over and len(found) < BATCH and (left := until - time.monotonic()) > 0:
            if not self._connection.poll(left):
                break
            try:
                message = self._connection.recv()
            except EOFError:
                message = None
            if message is None:
                self._is_over = True
            else:
                found.append(message)
        return found

    def _go_on(self) -> None:
        """With what an earlier process found out and W&B may not know."""
        self._add(self._run.headers())

    def _tell(self, batch: Sequence[Message]) -> None:
        for message in batch:
            match message:
                case Progress():
                    self._series.progress(message)
                case Ended(summary=None):
                    self._series.failed(message.cause)
                case Ended() | Sample():
                    pass
        self._add([message.summary for message in batch if isinstance(message, Ended) and message.summary])
        for sample in batch:
            if isinstance(sample, Sample):
                self._point(sample.time, self._series.sample(sample))
        if time.time() - self._pointed >= self._given.tracking.every:
            self._point(time.time(), {})

    def _add(self, headers: Sequence[rows.Header]) -> None:
        found = {rows.key(header): header for header in headers}
        self._headers |= found
        new = {key: header for key, header in found.items() if key not in self._ledger.units}
        if new:
            before = len(self._ledger.units)
            self._ledger.note(units=new)
            for number, header in enumerate(new.values(), start=before + 1):
                self._wandb.log(rows.history(header, number))
        if len(self._headers) >= self._next_table:
            self._next_table = 2 * len(self._headers)
            self._table({})

    def _point(self, time: float, values: Mapping[str, float]) -> None:
        self._pointed = time
        hours = (time - self._ledger.began) / 3600
        self._wandb.log({"run/hours": hours, **values, **self._series.values(time), **self._agents()})

    def _agents(self) -> dict[str, float]:
        """The figures of the report as numbers that grow with the run."""
        found = agents(list(self._headers.values()))
        if not found.investigations:
            return {}
        values: dict[str, float | None] = {f"used/{plain(tool)}": share for tool, share in found.usage.items()}
        values |= {f"length/{length.turns:03d}_turns": length.investigations for length in found.lengths}
        values |= {"turns": found.turns, "messages": found.messages, "converged": found.convergence}
        return {f"agents/{key}": value for key, value in values.items() if value is not None}

    def _finish(self) -> None:
        scores = {
            (owed.unit.target, owed.unit.layer, owed.unit.index, owed.replicate): found
            for owed, found in self._run.scores().items()
        }
        new = [key for key in scores if key in self._headers and key not in self._ledger.scored]
        before = len(self._ledger.scored)
        self._ledger.note(scored=new)
        for number, key in enumerate(new, start=before + 1):
            self._wandb.log(rows.scored(self._headers[key], scores[key], number))
        self._point(time.time(), {})
        if self._headers:
            self._table(scores)
        self._wandb.finish()

    def _table(self, scores: Mapping[Key, Mapping[str, Any]]) -> None:
        shown = [
            rows.row(header, scores.get(key, {}), self._picture(key) or None) for key, header in self._headers.items()
        ]
        self._wandb.table(rows.COLUMNS, shown)
        fields = ("turns", "messages", "converged")
        known = {f: [h[f] for h in self._headers.values() if h.get(f) is not None] for f in fields}
        self._wandb.histograms({f"agents/histogram/{field}": values for field, values in known.items()})

    def _picture(self, key: Key) -> bytes:
        if key not in self._pictures and len(self._pictures) < PICTURES:
            try:
                self._pictures[key] = rows.thumbnail(self._run.record(rows.owed(key)))
            except (StoreError, OSError):  # a damaged record, or one that is not there any more
                self._pictures[key] = b""
        return self._pictures.get(key, b"")


def tried(work: Callable[[], None], connection: Connection) -> bool:
    """The boundary: wandb raises whatever it likes, and the sweep hears of it in one line only."""
    try:
        work()
        return True
    except Exception as error:
        said = error.message if isinstance(error, OpenMaiaError) else f"{type(error).__name__}: {error}"
        try:
            connection.send(" ".join(said.split()))
        except OSError:
            return False  # the driver is gone
    return False


def main() -> None:
    """Says "" once it has started, and then what went wrong, a line each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(10)
    connection = Connection(int(sys.argv[1]))
    given: Given = connection.recv()
    made: list[Follower] = []
    if tried(lambda: made.append(Follower(given, connection)), connection):
        tried(lambda: connection.send(""), connection)
        made[0].follow()
