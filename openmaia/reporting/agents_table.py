"""The table of agents: a CSV file to which each benchmark adds rows, and the page that is written from it."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from openmaia.analysis.benchmark import TABLE_MEASURES
from openmaia.core import tables
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.text import printable
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.runs.files import Files

_FACTS = ("known", "agent", "backbone", "units", "measured")
_HEAD = "# Agents on units of known truth\n"
_ENDS = ("", "_low", "_high")
_COLUMNS = (*_FACTS, *(f"{measure.name}{end}" for measure in TABLE_MEASURES for end in _ENDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """An agent in the table."""

    known: str
    """The config of the units of known truth."""
    agent: str
    """The agent's config."""
    backbone: str
    units: int
    measured: str
    """Date."""
    values: Mapping[str, Interval | None]
    """By the names of TABLE_MEASURES."""


def check_table(path: str) -> None:
    """Raises UsageError if `add_rows` would not find a table at `path`, or a place for one."""
    _read(path)


def add_rows(path: str, rows: Sequence[AgentRow]) -> str:
    """Writes rows into the table at `path`, a CSV file, in place of earlier ones of the same agents and units, and the page
    beside it. Returns the path of the page.

    Raises:
        UsageError: The file is no table of agents.
        StoreError: A file cannot be read or written.
    """
    table = {(each.known, each.agent): each for each in (*_read(path), *rows)}
    found = [table[key] for key in sorted(table, key=lambda key: key[0])]
    file = user_path(path)
    files, page = Files(str(file.parent)), file.with_suffix(".md")
    files.create()
    files.write(file.name, _to_csv(found).encode())
    files.write(page.name, write_page(found, file.name).encode())
    return str(page)


def _read(path: str) -> list[AgentRow]:
    file = user_path(path)
    if file.suffix != ".csv":
        raise UsageError(f"--to={path}: expected a file that ends in .csv, to which rows are added")
    files, page = Files(str(file.parent)), file.with_suffix(".md")
    if (text := files.read(page.name)) is not None and not text.startswith(_HEAD.encode()):
        raise UsageError(f"--to={path}: {page} would be written from it, and is another page; give another name")
    data = files.read(file.name)
    if data is None:
        return []
    try:
        table = tables.read(data)
    except tables.UnreadableTable as error:
        raise UsageError(f"--to={path} {error.message}") from error
    if missing := [each for each in _COLUMNS if each not in table.columns]:
        raise UsageError(f"--to={path} is no table of agents: it lacks the column {missing[0]}; give another file")
    return [_row(cells, f"--to={path}, row {number}") for number, cells in table.rows]


def _row(cells: Mapping[str, str], where: str) -> AgentRow:
    if unprintable := next((each for each in _FACTS if not cells[each].isprintable() or not cells[each]), ""):
        raise UsageError(
            f"{where}: {printable(cells[unprintable][:40], replacement='?')!r} is no value of {unprintable}"
        )
    if not cells["units"].isdecimal():
        raise UsageError(f"{where}: {cells['units'][:40]!r} is no number of units")
    return AgentRow(
        known=cells["known"],
        agent=cells["agent"],
        backbone=cells["backbone"],
        units=int(cells["units"]),
        measured=cells["measured"],
        values={
            measure.name: _interval([cells[measure.name + end] for end in _ENDS], where) for measure in TABLE_MEASURES
        },
    )


def _interval(cells: Sequence[str], where: str) -> Interval | None:
    if not any(cells):
        return None
    try:
        mean, low, high = map(float, cells)
    except ValueError:
        mean = low = high = math.nan
    if not low <= mean <= high:
        raise UsageError(f"{where}: {', '.join(cells)[:60]!r} is no value with both ends of its interval")
    return Interval(mean=mean, low=low, high=high)


def _to_csv(rows: Iterable[AgentRow]) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_COLUMNS)
    for row in rows:
        cells = [cell for measure in TABLE_MEASURES for cell in _cells(row.values[measure.name])]
        table.writerow([row.known, row.agent, row.backbone, row.units, row.measured, *cells])
    return out.getvalue()


def _cells(interval: Interval | None) -> Sequence[str]:
    if interval is None or math.isnan(interval.mean):
        return ("", "", "")
    return [f"{value:.6g}" for value in (interval.mean, interval.low, interval.high)]


def write_page(rows: Iterable[AgentRow], source: str) -> str:
    """Returns the table as a page in Markdown. `source` is the name of the CSV file."""
    hints = "\n".join(f"- **{measure.title}**: {measure.hint}." for measure in TABLE_MEASURES)
    heads = " | ".join(("agent", "units", *(measure.title for measure in TABLE_MEASURES), "measured"))
    parts = [
        f"## {_escaped(known)}\n\n| {heads} |\n|{'---|' * (len(TABLE_MEASURES) + 3)}\n" + "\n".join(map(_line, several))
        for known, several in groupby(rows, key=lambda row: row.known)
    ]
    tables_of_units = "\n\n".join(parts)
    return f"""{_HEAD}
Written by `openmaia benchmark` from `{source}`. `openmaia benchmark AGENT --to {source}` adds a row or replaces it. Each value stands with its
95 % interval.

{hints}

{tables_of_units}
"""


def _line(row: AgentRow) -> str:
    cells = (show_value(row.values[measure.name], measure.form) for measure in TABLE_MEASURES)
    agent = f"**{_escaped(row.agent)}**, {_escaped(row.backbone)}"
    return f"| {' | '.join((agent, str(row.units), *cells, _escaped(row.measured)))} |"


def show_value(interval: Interval | None, form: str) -> str:
    """Returns a value with its interval, such as "76 % (70 % to 81 %)"; "n/a" if there is none."""
    if interval is None or math.isnan(interval.mean):
        return "n/a"
    mean, low, high = (format(value, form).replace("%", " %") for value in (interval.mean, interval.low, interval.high))
    return mean if mean == low == high else f"{mean} ({low} to {high})"


def _escaped(text: str) -> str:
    return "".join(f"\\{each}" if each in r"\`*_{}[]<>()#|!" else each for each in text)
