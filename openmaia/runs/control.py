"""RunOrders to the driver of a run: to pause, to stop, and to investigate a unit again.

An order is a small file in the folder `control` of the run directory, which the driver reads every EVERY seconds. Whoever
can write there can give one, from any host. `pause` and `stop` are for the driver that runs: the next one deletes what is
left of them. An order to investigate again stays until a driver has obeyed it.
"""

import ctypes
import getpass
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, cast

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.text import printable
from openmaia.core.typed import find_mistyped
from openmaia.runs import progress
from openmaia.runs.aside import set_aside
from openmaia.runs.files import Files
from openmaia.runs.ids import InvestigationId
from openmaia.runs.lease import held
from openmaia.runs.records import dumps
from openmaia.runs.run import Run

EVERY = 2.0
"""Seconds between two readings of the orders by the driver."""
_WAITING = 10.0
"""Seconds between two readings by a paused investigation on an object store, where a reading costs money."""

_FOLDER = "control"
_PAUSE, _STOP, _RETRY = f"{_FOLDER}/pause.json", f"{_FOLDER}/stop.json", f"{_FOLDER}/retry"
RETRIED = "retried"
"""Folder of what was stored about investigations before they were repeated, in a folder for each order."""
_VERSION = 1
_LARGEST = 2_000
"""Size in bytes from which on a file is no order."""
_NAME = 80
"""Number of characters of `RunOrder.by` that are shown."""
_LATEST = 1e11
"""A time after all that clocks can mean: the year 5138."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """What the file of an order says."""

    by: str
    """Who gave it, as user@host. Not verified."""
    time: float
    """When, in seconds since 1970, by the clock of that host."""
    version: int = _VERSION

    @property
    def words(self) -> str:
        """Since when, and by whom: "2026-11-29 16:20:05 by anna@login1"."""
        return f"{datetime.fromtimestamp(self.time):%Y-%m-%d %H:%M:%S} by {printable(self.by)[:_NAME]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrders:
    """All orders of a run."""

    pause: RunOrder | None = None
    stop: RunOrder | None = None
    retries: Mapping[InvestigationId, RunOrder] = field(default_factory=dict[InvestigationId, RunOrder])
    """The investigations that are to be done again."""
    refused: tuple[str, ...] = ()
    """Why files of the folder are no orders."""
    is_known: bool = True
    """Whether it is known that `pause` is None. If not, an earlier pause may go on."""


class _Unread(StoreError):
    """A file cannot be read now, whatever it holds."""


def read_orders(run: Run) -> RunOrders:
    """Reads the orders of a run. Never raises: what cannot be read is in `RunOrders.refused`."""
    files = run.investigations
    found: dict[str, RunOrder] = {}
    retries: dict[InvestigationId, RunOrder] = {}
    refused: list[str] = []
    is_known = True
    try:
        sizes = files.sizes(_FOLDER)
    except StoreError as error:
        return RunOrders(refused=(printable(error.message),), is_known=False)
    for name, size in sizes.items():
        try:
            investigation = _investigation(name)
            if (order := _read(files, name, size)) is None:
                continue  # it was taken back in the meantime
        except _Unread as error:
            is_known = is_known and name != _PAUSE
            refused.append(printable(error.message))
            continue
        except StoreError as error:
            refused.append(printable(f"{files.path(name)} is no order, and is left alone: {error.message}"))
            continue
        if investigation is None:
            found[name] = order
        else:
            retries[investigation] = order
    return RunOrders(
        pause=found.get(_PAUSE), stop=found.get(_STOP), retries=retries, refused=tuple(refused), is_known=is_known
    )


def _investigation(name: str) -> InvestigationId | None:
    """Returns which investigation an order is about, None for the whole run. Raises StoreError for other files."""
    if name in (_PAUSE, _STOP):
        return None
    found = InvestigationId.of_path(name.removeprefix(f"{_FOLDER}/"))
    if found is None or name != _retry_file(found):
        raise StoreError("no order has this name")
    return found


def _retry_file(investigation: InvestigationId) -> str:
    return f"{_RETRY}/{investigation.path}.json"


def _read(files: Files, name: str, size: int) -> RunOrder | None:
    if size > _LARGEST:
        raise StoreError(f"it has {size:,} bytes")
    try:
        data = files.read(name)
    except StoreError as error:
        raise _Unread(error.message) from error
    if data is None:
        return None
    try:
        values: Any = parse_json(data)
    except ValueError as error:
        raise StoreError(str(error)) from error
    if isinstance(values, dict) and values.get("version") != _VERSION:  # pyright: ignore[reportUnknownMemberType]
        raise StoreError(f"it is not of version {_VERSION}; use the version of OpenMAIA that executes the run")
    if (problem := find_mistyped(values, RunOrder)) is not None:
        raise StoreError(f"its values have wrong types ({problem})")
    if not 0 <= values["time"] < _LATEST:
        raise StoreError("its time is none")
    found = cast(dict[str, Any], values)
    return RunOrder(by=found["by"], time=found["time"])


# -- to give orders -----------------------------------------------------------------------------------------------------


def pause(run: Run) -> None:
    """Lets no turn, no investigation and no test of the run begin until `resume`. What runs ends.

    Raises UsageError if no driver executes the run.
    """
    _require_driver(run, "pause")
    if read_orders(run).pause is None:  # it keeps its begin
        _write(run, _PAUSE)


def resume(run: Run) -> None:
    """Takes back `pause`. Raises UsageError if the run is not paused."""
    _require_driver(run, "resume")
    if not run.investigations.exists(_PAUSE):
        raise UsageError(f"{run.files.root} is not paused")
    run.investigations.delete(_PAUSE)


def stop(run: Run) -> None:
    """Ends the driver of the run as Ctrl-C does. Raises UsageError if there is none."""
    _require_driver(run, "stop")
    _write(run, _STOP)


def retry(run: Run, investigation: InvestigationId) -> None:
    """Lets a unit be investigated again that is finished, failed or was interrupted: now, or by the next driver if none
    executes the run. What is stored about it is kept in another folder.

    Raises UsageError if the investigation is not planned, has not begun, or is running.
    """
    _refuse_external(run)
    if investigation not in run.plan():
        raise UsageError(f"{run.files.root} has no investigation {investigation.name}; `openmaia show` lists its units")
    if not (run.is_done(investigation) or investigation in run.failed() | run.running()):
        raise UsageError(f"{investigation.name} has not been investigated yet, so that there is nothing to repeat")
    driver = progress.read(run)
    if driver is not None and investigation in driver.running and not run.is_done(investigation):
        raise UsageError(f"{investigation.name} is being investigated; repeat it when it has ended")
    _write(run, _retry_file(investigation))


def find_investigation(run: Run, text: str) -> InvestigationId:
    """Returns the planned investigation that a text such as "layer4=122", "layer4/122" or "layer4=122#1" names.

    Raises UsageError if there is none.
    """
    match = re.fullmatch(r"\s*(.+?)\s*[=/]\s*(-?[0-9]{1,9})\s*(?:#([0-9]{1,9}))?\s*", text)
    if match is None:
        raise UsageError(f"{printable(text)!r} names no unit: expected LAYER=INDEX, such as layer4=122")
    wanted = (match[1], int(match[2]), int(match[3] or 0))
    for each in run.plan():
        if (each.unit.layer, each.unit.index, each.replicate) == wanted:
            return each
    raise UsageError(f"{run.files.root} has no unit {printable(text)}; `openmaia show` lists its units")


def _refuse_external(run: Run) -> None:
    if run.config()["backbone"]["kind"] == "external":
        raise UsageError(f"{run.files.root} is of an agent outside of OpenMAIA, which takes no orders; tell that agent")


def _require_driver(run: Run, order: str) -> None:
    _refuse_external(run)
    if not run.is_driven(wait=True):
        raise UsageError(
            f"no command executes {run.files.root}, so that there is nothing to {order}; `openmaia run` with the config of "
            "the run continues it"
        )


def _write(run: Run, name: str) -> None:
    order = RunOrder(by=giver(), time=round(time.time(), 3))
    run.investigations.write(name, dumps(asdict(order)).encode(errors="replace"))


def giver() -> str:
    """Returns who gives orders here: user@host."""
    return f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return f"user {os.getuid()}"  # a container may have no name for it


# -- to obey them -------------------------------------------------------------------------------------------------------


def wait_while_paused(run: Run) -> None:
    """Returns when the run is not paused."""
    is_paused = False
    while (orders := read_orders(run)).pause is not None or (is_paused and not orders.is_known):
        is_paused = True
        time.sleep(EVERY if run.investigations.local else _WAITING)


@contextmanager
def obeyed(run: Run, say: Callable[[str], None]) -> Generator[None]:
    """Context manager for the driver of a run, in which an order to stop acts as Ctrl-C does.

    `say` receives what is ordered, also from another thread. Orders to pause or to stop that an earlier driver has left
    are deleted: a run that was paused and died goes on when it is started again.
    """
    left = read_orders(run)
    if left.pause is not None:
        say(f"{run.name} was paused since {left.pause.words}, and goes on now")
    _forget(run)
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(run, say, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(StoreError):  # the next driver deletes them, too
            _forget(run)


def _forget(run: Run) -> None:
    for name in (_PAUSE, _STOP):
        run.investigations.delete(name)


def _follow(run: Run, say: Callable[[str], None], ended: threading.Event) -> None:
    paused, refused = None, set[str]()
    while not ended.wait(EVERY):
        orders = read_orders(run)
        for reason in set(orders.refused) - refused:
            say(reason)
        refused.update(orders.refused)
        if not orders.is_known:
            continue
        if orders.pause is not None and paused is None:
            say(
                f"{run.name} is paused since {orders.pause.words}: turns that run end, and no other begins. Models stay "
                "loaded"
            )
        elif orders.pause is None and paused is not None:
            say(f"{run.name} goes on")
        paused = orders.pause
        if orders.stop is not None:
            say(f"{run.name} is stopped, as ordered {orders.stop.words}")
            _interrupt()
            return


def _interrupt() -> None:
    main = threading.main_thread().ident or 0
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background processes so
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(KeyboardInterrupt))
    else:  # a real signal also ends what waits inside of a library
        signal.pthread_kill(main, signal.SIGINT)


def take_retries(run: Run, say: Callable[[str], None]) -> None:
    """Obeys, before a driver works on a run, the orders to investigate again that no driver has obeyed yet."""
    if not read_orders(run).retries:
        return
    with held(run.investigations):
        for investigation, order in read_orders(run).retries.items():
            if take_retry(run, investigation, order):
                say(f"{investigation.name} is investigated again, as ordered {order.words}")


def take_retry(run: Run, investigation: InvestigationId, order: RunOrder) -> bool:
    """Obeys an order to investigate again: moves what is stored about an investigation to `retried/TIME/` in the run
    directory, so that it is pending. Returns whether there was anything.

    Interrupted at any point, the next call moves the rest to the same place: the order is deleted at the end.
    """
    moved = False
    if investigation in run.plan():
        moved = set_aside(run, investigation, f"{RETRIED}/{order.time * 1000:.0f}")
    run.investigations.delete(_retry_file(investigation))
    return moved
