"""Progress bars, one per stage, and lines above them."""

from datetime import timedelta

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

console = Console()


class _Rate(ProgressColumn):
    """Steps per second and the time left."""

    def render(self, task: Task) -> Text:
        if task.finished or not task.speed:
            return Text("")
        left = "" if task.time_remaining is None else f", {timedelta(seconds=round(task.time_remaining))} left"
        return Text(f"{task.speed:.3g}/s{left}", style="dim")


class Terminal:
    """Progress bars, one per stage, and lines above them."""

    def __init__(self) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<15}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _Rate(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Terminal":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        self._bars.console.print(escape(line), highlight=False)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)
        if note:
            self.say(note)
