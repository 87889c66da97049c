"""SIGTERM, as schedulers send it, ends a run the way Ctrl-C does."""

import signal
import threading
from types import FrameType


def on_sigterm() -> None:
    """From here on SIGTERM raises KeyboardInterrupt; in a thread other than the main one nothing changes."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
