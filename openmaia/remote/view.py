"""Who is told how a run goes on."""

from typing import Protocol


class View(Protocol):
    """Whoever looks on: a terminal, a test, nobody."""

    def say(self, line: str) -> None: ...

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None: ...
