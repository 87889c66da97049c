"""The purse of a run: what the run has spent, of which budget. The sum is kept in the run directory."""

import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError
from openmaia.core.money import FREE, Bill, PaymentTerms
from openmaia.core.typed import find_mistyped
from openmaia.runs.records import dumps
from openmaia.runs.run import Run

_FILE = "spent.json"
COMMANDS = "spent-by-commands"
"""Folder of what commands have spent that use a run's models in their own process, possibly beside the run. Each has a file of
its own, so that nobody overwrites the sum of another one."""


class Book(Protocol):
    """Keeps the account of a run, in this process or in another one."""

    def pay(self, bill: Bill) -> None:
        """See `Account.pay`. Returns when the sum is stored."""
        ...

    def may_go_on(self, caller: str, reserve: float) -> bool:
        """See `Account.may_go_on`. Once False, it remains so."""
        ...

    def is_empty(self) -> bool:
        """See `Account.is_empty`."""
        ...

    def leave(self, caller: str) -> None:
        """Says that an investigation or a test has ended, so that it needs no reserve."""
        ...


@dataclass(frozen=True, slots=True)
class RunPurse:
    """Pays the investigations and tests of a run from one book."""

    book: Book
    gpu_hour: float
    paid: frozenset[str]
    """The services that cost something."""

    def terms(self, caller: str) -> PaymentTerms:
        return PaymentTerms(account=_CallerAccount(self.book, caller), gpu_hour=self.gpu_hour, paid=self.paid)

    def leave(self, caller: str) -> None:
        self.book.leave(caller)

    def may_begin(self) -> bool:
        """Returns whether a further investigation may begin."""
        return self.book.may_go_on("", 0.0)


@dataclass(frozen=True, slots=True)
class _CallerAccount:
    book: Book
    caller: str

    def pay(self, bill: Bill) -> None:
        self.book.pay(bill)

    def may_go_on(self, reserve: float) -> bool:
        return self.book.may_go_on(self.caller, reserve)

    def is_empty(self) -> bool:
        return self.book.is_empty()


@dataclass(slots=True)
class RunBook:
    """The book of a run, in this process. Thread-safe. It continues with what the run has spent before.

    `budget` is in US dollars; 0: unlimited.
    """

    run: Run
    budget: float
    file: str = _FILE
    """The file of the sum; one in COMMANDS for a command. All count towards the budget."""
    _elsewhere: float = 0.0
    """Dollars in the other files when this book was opened."""
    _sum: Bill = field(init=False)
    _reserves: dict[str, float] = field(default_factory=dict[str, float])
    """By caller: what it needs for its last turn."""
    _is_closed: bool = False
    _stored: Bill = FREE
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        own, commands = _read_own(self.run), _by_commands(self.run)
        is_own = self.file == _FILE
        self._sum = self._stored = own if is_own else FREE
        self._elsewhere = (commands if is_own else own + commands).dollars

    def pay(self, bill: Bill) -> None:
        with self._lock:
            self._sum += bill
            needed = self._sum
        # Several payments share a write: an object store takes longer for it than a server for a reply.
        with self._writing:
            if self._stored.dollars >= needed.dollars and self._stored.unpriced >= needed.unpriced:
                return
            latest = self._sum
            self.run.files.write(self.file, dumps(asdict(latest)).encode())
            self._stored = latest

    def may_go_on(self, caller: str, reserve: float) -> bool:
        with self._lock:
            if caller:
                self._reserves[caller] = reserve
            if self.budget and self._elsewhere + self._sum.dollars + self._reserved() >= self.budget:
                self._is_closed = True
            return not self._is_closed

    def is_empty(self) -> bool:
        return self.budget > 0 and self._elsewhere + self._sum.dollars >= self.budget

    def leave(self, caller: str) -> None:
        with self._lock:
            self._reserves.pop(caller, None)

    def _reserved(self) -> float:
        """What all last turns cost. An investigation without a turn needs as much as the mean of the others."""
        known = [reserve for reserve in self._reserves.values() if reserve]
        return sum(known) * len(self._reserves) / len(known) if known else 0.0


def stored_spending(run: Run, recorded: Bill = FREE) -> Bill:
    """Returns the sum in the run directory. `recorded`: what the run itself has spent, if that is not stored or cannot be read."""
    try:
        return (_stored(run, _FILE) or recorded) + _by_commands(run)
    except StoreError:
        return recorded


def _by_commands(run: Run) -> Bill:
    return _total(_stored(run, name) for name in run.files.names(COMMANDS))


def _stored(run: Run, file: str) -> Bill:
    try:
        stored: Any = parse_json(run.files.read(file) or b"null")
    except ValueError:
        return FREE
    return Bill(**stored) if find_mistyped(stored, Bill) is None else FREE


def read_spending(run: Run) -> Bill:
    """Returns what a run has spent, with tests, failed calls and commands; without a stored sum, what records and journals
    hold.

    Raises StoreError if the run directory cannot be read: a sum that is taken for 0 would be spent again.
    """
    return _read_own(run) + _by_commands(run)


def _read_own(run: Run) -> Bill:
    if stored := _stored(run, _FILE):
        return stored
    usages = (usage for header in run.headers() for usage in header["spent"].values())
    recorded = _total(Bill(usage.get("dollars", 0.0), usage.get("unpriced", 0)) for usage in usages)
    if not run.files.names("journal"):
        return recorded
    turns = (turn for pending in run.iter_pending() for turn in run.journal(pending).turns())
    return recorded + _total(turn.bill for turn in turns)


def _total(bills: Iterable[Bill]) -> Bill:
    return sum(bills, FREE)
