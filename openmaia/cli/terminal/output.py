"""Prints lines, tables and progress bars in the terminal."""

from collections.abc import Callable, Collection, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
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
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from openmaia.core.secrets import redacted
from openmaia.core.text import printable
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.runs.state import time_left


class PrintableConsole(Console):
    """A console that shows control characters of printed texts as "�", because labels and file names may hold any."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields the segments of a renderable object, with control characters in texts replaced by "�".

        Segments that hold control codes of the console itself are unchanged.
        """
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control
                else Segment(printable(segment.text, keep="\n", replacement="�"), segment.style)
            )


console = PrintableConsole()


def say(line: str, *, dim: bool = False) -> None:
    """Prints a line without interpreting markup; with `dim` in a weaker colour, for explanations below a table."""
    console.print(redacted(line), highlight=False, markup=False, style="dim" if dim else None)


def show_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    left: int = 1,
    whole: Collection[str] = (),
    broken: Collection[str] = (),
    tight: bool = False,
) -> None:
    """Prints a table.

    Args:
        title: The text above the table; empty for a table without a title.
        columns: The names of the columns.
        rows: The cells of each row. Markup in strings is not interpreted.
        left: The number of leading columns that are aligned to the left; the others are aligned to the right.
        whole: The names of the columns whose cells are not wrapped.
        broken: The names of the columns that are wrapped, between words, if a word of another column would have no room.
        tight: Whether one space is between columns, not two.
    """
    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0 if tight else 1, 0, 0),
    )
    lines = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    sizes = [
        [Measurement.get(console, console.options, cell) for cell in (Text(column), *cells)]
        for column, *cells in zip(columns, *lines, strict=True)
    ]
    words, texts = ([max(getattr(each, name) for each in size) for size in sizes] for name in ("minimum", "maximum"))
    kept = [
        text if column in (*whole, *broken) else word for column, word, text in zip(columns, words, texts, strict=True)
    ]
    # A column has a space or two to its right, and the table one to its left and right.
    is_narrow = sum(kept) + len(columns) * (1 if tight else 2) + 1 > console.width
    for number, column in enumerate(columns):
        table.add_column(
            Text(column),
            justify="left" if number < left else "right",
            overflow="fold",
            no_wrap=column in whole or (column in broken and not is_narrow),
            max_width=words[number] if column in broken and is_narrow else None,
        )
    for line in lines:
        table.add_row(*line)
    console.print(table)


def format_interval(interval: Interval | None, spec: str = ".2f") -> str:
    """Formats a mean with its interval. Returns an empty string if the interval is None or the mean is NaN.

    `spec` is the format specification of each number.
    """
    if interval is None or interval.mean != interval.mean:
        return ""
    return f"{interval.mean:{spec}} ({interval.low:{spec}} to {interval.high:{spec}})"


class _Rate(ProgressColumn):
    """Shows the estimated time left, or the steps per second since the stage began.

    Only the first unfinished stage says how much time is left: later ones wait for it. The rate is that of `openmaia
    show`, so that both say the same.
    """

    leading: TaskID | None = None

    def render(self, task: Task) -> Text:
        done = task.completed - task.fields["before"]
        if task.finished or done <= 0 or not task.elapsed:
            return Text("")
        rate, total = done / task.elapsed, task.total or 0
        text = time_left((total - task.completed) / rate) if task.id == self.leading else f"{rate:.3g}/s"
        return Text(text, style="dim")


class _Bars(Progress):
    """Progress bars, with the object that the function `below` returns under them, or nothing if it returns None."""

    def __init__(self, *columns: ProgressColumn, console: Console, below: Callable[[], RenderableType | None]):
        self._below = below
        super().__init__(*columns, console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if (below := self._below()) is not None:
            yield below


class Terminal:
    """Shows a progress bar for each stage of a run, such as its investigations, and prints lines above the bars.

    Args:
        below: Returns what is shown below the bars, or None. It is called for every refresh.
    """

    def __init__(self, below: Callable[[], RenderableType | None] = lambda: None) -> None:
        text, bar = TextColumn("{task.description:<15}"), BarColumn(bar_width=30)
        self._rate = _Rate()
        columns = (SpinnerColumn(), text, bar, MofNCompleteColumn(), TimeElapsedColumn(), self._rate)
        self._bars = _Bars(*columns, console=console, below=below)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Terminal":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """Prints a line above the progress bars."""
        say(line)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Updates the progress bar of a stage, and prints a note above the bars.

        `done` and `total` are the numbers of finished and of all items. An empty note is not printed.
        """
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, before=done)
        self._bars.update(self._tasks[stage], completed=done, total=total)
        self._rate.leading = next((each.id for each in self._bars.tasks if not each.finished), None)
        if note:
            say(note)
