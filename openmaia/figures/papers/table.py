"""A table as CSV and as LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

Cell = str | float | int | None

_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': r"\textquotedbl{}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """rows: a cell per column. notes: below the table, in LaTeX."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def csv(self) -> bytes:
        """Numbers to six digits. A text that a spreadsheet would take for a formula gets an apostrophe in front."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_plain(cell) for cell in row] for row in self.rows)
        return buffer.getvalue().encode("utf-8", "replace")

    def latex(self) -> bytes:
        """A float for `booktabs` and `fontenc` T1. Numbers with two decimals; whole numbers whole."""
        layout = "".join("r" if _is_number(column) else "l" for column in zip(*self.rows, strict=True))
        lines = [
            r"% \usepackage{booktabs} \usepackage[T1]{fontenc}",
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escaped(self.caption)}}}",
            rf"\begin{{tabular}}{{{layout or 'l' * len(self.columns)}}}",
            r"\toprule",
            _line([escaped(name.replace("_", " ")) for name in self.columns]),
            r"\midrule",
            *(_line([_shown(cell) for cell in row]) for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {escaped(note)}" for note in self.notes),
            r"\end{table}",
        ]
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def escaped(text: str) -> str:
    """Text for LaTeX in which nothing is a command. Control characters and line ends become spaces."""
    return "".join(_TEX.get(letter, letter if letter.isprintable() else " ") for letter in text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _plain(cell: Cell) -> object:
    match cell:
        case None:
            return ""
        case float():
            return "" if cell != cell else f"{cell:.6g}"
        case str():
            return f"'{cell}" if cell[:1] in tuple("=+-@\t\r") else cell
        case _:
            return cell


def _shown(cell: Cell) -> str:
    match cell:
        case None:
            return ""
        case float():
            return "" if cell != cell else f"${cell:.2f}$"
        case str():
            return escaped(cell)
        case _:
            return str(cell)


def _is_number(cells: Sequence[Cell]) -> bool:
    return any(isinstance(cell, (int, float)) for cell in cells) and not any(isinstance(cell, str) for cell in cells)
