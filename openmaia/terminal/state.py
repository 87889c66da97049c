"""How a run stands, once or again and again until it ends."""

import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openmaia.store.run import Owed, Run
from openmaia.store.state import Counts, Running, counts
from openmaia.terminal.progress import console
from openmaia.terminal.reliability import show_reliability
from openmaia.terminal.tables import table

EVERY = 2.0
"""Seconds between two looks at the run directory."""

LONGEST = 20
"""Running investigations and failures that are shown."""

MANY = 1000
"""Evaluations; beyond that a look does not read all of them."""


def show_once(run: Run, resamples: int) -> None:
    found = counts(run)
    console.print(drawn(run, found), highlight=False)
    if found.done:
        table(run, resamples, overall=found.evaluated <= MANY)
        show_reliability(run)


def watch(run: Run) -> None:
    """Until nobody drives the run any more, or nothing is left to do. Ctrl-C ends the look and not the run."""
    with Live(console=console, auto_refresh=False) as live:
        for found in _looks(run):
            live.update(drawn(run, found), refresh=True)


def _looks(run: Run) -> Iterator[Counts]:
    while True:
        found = counts(run)
        yield found
        if not run.is_driven():
            return
        time.sleep(EVERY)


def drawn(run: Run, found: Counts) -> RenderableType:
    parts: list[RenderableType] = [
        Text(
            f"run {found.name}: {found.done} done, {len(found.running)} running, {found.owed} owed, {found.failed} failed, "
            f"{found.evaluated} evaluated"
        ),
        Padding(ProgressBar(total=max(found.planned, 1), completed=found.done, width=60), 0),  # ends its line
    ]
    if found.per_second is not None:
        left = found.seconds_left
        eta = "" if left is None else f", about {timedelta(seconds=round(left))} left"
        parts.append(Text(f"{found.per_second * 60:.3g} investigations a minute{eta}"))
    if found.running:
        parts.append(_running(found.running))
    parts += [
        Text(f"failed: {owed.unit}: {cause.splitlines()[0]}", style="red") for owed, cause in _failures(run, found)
    ]
    return Group(*parts)


def _running(running: tuple[Running, ...]) -> Table:
    shown = Table(box=None, padding=(0, 2, 0, 0))
    shown.add_column("running", overflow="fold")
    shown.add_column("turn", justify="right")
    shown.add_column("age", justify="right")
    oldest = sorted(running, key=lambda each: (-(each.seconds or 0), each.owed))
    for each in oldest[:LONGEST]:
        again = f" #{each.owed.replicate}" if each.owed.replicate else ""
        age = "interrupted" if each.seconds is None else str(timedelta(seconds=round(each.seconds)))
        shown.add_row(escape(f"{each.owed.unit}{again}"), str(each.turn), age)
    if len(running) > LONGEST:
        shown.add_row(f"{len(running) - LONGEST} more", "", "")
    return shown


def _failures(run: Run, found: Counts) -> Iterable[tuple[Owed, str]]:
    return islice(run.failures().items(), LONGEST) if found.failed else ()
