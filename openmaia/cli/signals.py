"""Ends a command cleanly and within a time limit after Ctrl-C or SIGTERM.

The first signal raises KeyboardInterrupt in the main thread. The process ends at once after a second signal, or if the
main thread has not ended within a time limit (_GRACE), for example because it waits inside a library. Ending at once
loses no data: the files of a run are complete at any time, and child processes end with the process.
"""

import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

_GRACE = 12.0
"""Time limit in seconds for a clean end. Job schedulers send SIGKILL after 15 seconds or more."""

STOPPED = 3
"""Exit code of a command that was stopped by a signal."""

TOGETHER = 0.5
"""Time in seconds within which two signals count as one, because a sender may signal both the process and its group."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_on_signals() -> None:
    """Lets Ctrl-C (SIGINT) and SIGTERM end this process. Call it once, in the main thread of a command."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The interpreter writes to this pipe when a signal arrives, even while the main thread is inside a library.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    for number in SIGNALS:
        signal.signal(number, _interrupt)


_is_ending = threading.Event()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_ending.is_set():
        _is_ending.set()
        raise KeyboardInterrupt


def _watch(reader: int) -> None:
    first = _next(reader, None)
    while time.monotonic() < first + _GRACE:
        again = _next(reader, first + _GRACE - time.monotonic())
        if again > first + TOGETHER:
            break
    end_at_once("stopped at once; run the same command again to continue", STOPPED)


def end_at_once(message: str, code: int) -> NoReturn:
    """Ends this process without waiting for anything in it.

    Args:
        message: The error message, which is written to stderr.
        code: The exit code.
    """
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar may have hidden it
    os.write(2, f"{cursor}error: {message}\n".encode())
    os._exit(code)


def _next(reader: int, seconds: float | None) -> float:
    """Waits until one of SIGNALS arrives or a time limit has passed.

    Args:
        reader: The file descriptor of a pipe to which the interpreter writes the numbers of the signals that arrive.
        seconds: The time limit. None means no limit.

    Returns:
        The value of `time.monotonic` at the end of the wait, whether or not a signal arrived.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        remaining = None if end is None else max(end - time.monotonic(), 0)
        if not select.select([reader], [], [], remaining)[0]:
            return time.monotonic()
        if any(number in SIGNALS for number in os.read(reader, 64)):
            return time.monotonic()
