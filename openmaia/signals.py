"""Ctrl-C and SIGTERM, as people and schedulers send them, end a command orderly and in time.

The first raises KeyboardInterrupt in the main thread. A second one, or a main thread that has not come to its end some
seconds later (it may be waiting for another thread, or inside a library), ends the process at once: journal and records
are whole at any time, and what the process started dies with it.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE = 12.0
"""Seconds to end orderly; schedulers send SIGKILL after 15 or more."""

STOPPED = 3
"""Exit code of what was asked to end before it was done."""

TOGETHER = 0.5
"""Seconds within which a second signal is taken for the same wish: to the process and to its group."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_on_signals() -> None:
    """For the main thread of a command; call it once."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The interpreter writes here when a signal comes, even while the main thread is inside a library.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    for number in SIGNALS:
        signal.signal(number, _interrupt)


@contextmanager
def kept() -> Iterator[None]:
    """Puts the handlers back in place that a library replaces meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_is_ending = threading.Event()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_ending.is_set():
        _is_ending.set()
        raise KeyboardInterrupt


def _watch(reader: int) -> None:
    first = _next(reader, None)
    while time.monotonic() < first + GRACE:
        again = _next(reader, first + GRACE - time.monotonic())
        if again > first + TOGETHER:
            break
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar may have hidden it
    os.write(2, f"{cursor}error: stopped at once; the same command goes on from here\n".encode())
    os._exit(STOPPED)


def _next(reader: int, seconds: float | None) -> float:
    """When the next signal of ours came, or the time was over."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if until is None else max(until - time.monotonic(), 0)
        if not select.select([reader], [], [], left)[0]:
            return time.monotonic()
        if any(number in SIGNALS for number in os.read(reader, 64)):
            return time.monotonic()
