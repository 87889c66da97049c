"""Reads tables that people made: CSV files of any usual dialect, with a header."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openmaia.core.errors import OpenMaiaError

SUFFIXES = (".csv", ".tsv", ".tab")

# Read as tables if a user names them as such. Spreadsheets are refused by their name.
_OTHERS = (".txt", ".xlsx", ".xls", ".ods")

DELIMITERS = ",;\t|"

_SHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # first bytes of the files of spreadsheet programs


class UnreadableTable(OpenMaiaError):
    """The file is no table. The message continues a sentence that begins with the file's name."""


def is_table(path: Path) -> bool:
    """Returns whether a file that a user named has the suffix of a table."""
    return path.suffix.lower() in (*SUFFIXES, *_OTHERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table whose columns have names."""

    columns: tuple[str, ...]
    """In lower case."""
    rows: list[tuple[int, dict[str, str]]]
    """Of each row that is not empty: its number as a spreadsheet shows it (the header is row 1), and its cells by
    column. Missing cells are empty; columns without a name are left out."""


def decode(data: bytes) -> str:
    """Decodes UTF-8, or UTF-16 with a byte order mark, as spreadsheet programs write it. Raises UnreadableTable for
    other encodings, which cannot be told from the file."""
    try:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16")
        decoded = data.decode("utf-8-sig")
    except ValueError as error:
        raise UnreadableTable(
            "is not UTF-8 text (spreadsheet programs may write the code page of Windows, such as cp1252); save it as "
            '"CSV UTF-8"'
        ) from error
    if "\0" in decoded:
        raise UnreadableTable("has null characters, as UTF-16 without a byte order mark has; save it as UTF-8")
    return decoded


def read(data: bytes) -> Table:
    """Reads a table whose cells are separated by commas, semicolons, tabs or vertical bars.

    The separator is the one that divides the header into the most cells. Cells in double quotes may hold separators and
    line ends.

    Raises:
        UnreadableTable: The file is a spreadsheet or no text, a quote is not closed, two columns have one name, or a
            row has more cells than the header.
    """
    if data.startswith(_SHEETS):
        raise UnreadableTable("is a spreadsheet; save it as CSV")
    content = decode(data)
    first = 1
    if named := re.match(
        r'"?sep=(.)"?[^\S\n\r]*(\r\n|\r|\n)', content, re.IGNORECASE
    ):  # a line for spreadsheet programs
        content, first = content[named.end() :], 2
    delimiter = named[1] if named else max(DELIMITERS, key=lambda each: _columns(content, each))
    try:
        records = list(enumerate(_records(content, delimiter), start=first))
    except csv.Error as error:
        raise UnreadableTable(f"is no table ({error})") from error
    filled = [(number, cells) for number, cells in records if any(cell.strip() for cell in cells)]
    header = [name.strip().lower() for name in filled[0][1]] if filled else []
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise UnreadableTable(f"has several columns named {' and '.join(twice)}; leave one of each")
    rows: list[tuple[int, dict[str, str]]] = []
    for number, cells in filled[1:]:
        stripped = [cell.strip() for cell in cells] + [""] * (len(header) - len(cells))
        if any(stripped[len(header) :]):
            raise UnreadableTable(
                f"has {len(cells)} cells in row {number}, and {len(header)} columns; put texts that hold {delimiter!r} in double "
                "quotes"
            )
        rows.append((number, {name: cell for name, cell in zip(header, stripped, strict=False) if name}))
    return Table(columns=tuple(header), rows=rows)


def parse_index(cell: str) -> int:
    """Reads an index, which programs may write as 122.0 or 122,0. Raises ValueError for others, such as 1.000, which
    may mean a thousand."""
    if not (found := re.fullmatch(r"(\d{1,9})(?:[.,]0{0,2})?", cell.strip(), re.ASCII)):
        raise ValueError(f"unit {cell[:20]!r} is no index; expected a whole number, such as 122")
    return int(found[1])


def _columns(content: str, delimiter: str) -> int:
    try:
        return len(next(filter(None, _records(content, delimiter)), list[str]()))
    except csv.Error:
        return 0


def _records(content: str, delimiter: str) -> Iterator[list[str]]:
    # strict, because an unclosed quote would otherwise make one cell of all rows below it.
    return csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
