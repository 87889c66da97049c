"""Writes tables as CSV and LaTeX with pandas."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openmaia.core.text import printable

if TYPE_CHECKING:
    import pandas as pd

TableCell = str | float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """A table with the numbers of a figure."""

    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    caption: str = ""
    """The title, in LaTeX only."""
    notes: tuple[str, ...] = ()
    """Sentences below the table, in LaTeX only."""

    def csv(self) -> bytes:
        """Returns CSV with six significant digits. Texts that a spreadsheet would read as formulas begin with an
        apostrophe."""
        return _frame(self.columns, [[_plain(cell) for cell in row] for row in self.rows]).to_csv(index=False).encode()

    def latex(self) -> bytes:
        """Returns a LaTeX table (needs `booktabs` and T1 fonts) with two decimals and escaped texts."""
        frame = _frame([name.replace("_", " ") for name in self.columns], self.rows)
        layout = "".join("r" if _is_number(column) else "l" for column in zip(*self.rows, strict=True))
        table = frame.to_latex(
            index=False,
            escape=True,
            na_rep="",
            float_format=lambda value: f"${value:.2f}$",
            column_format=layout or "l" * len(self.columns),
            caption=self.caption or None,
        )
        head, end, rest = table.replace(r"\begin{tabular}", "\\centering\\small\n\\begin{tabular}", 1).rpartition(
            r"\end{table}"
        )
        text = head + "".join(f"\\par\\footnotesize {note}\n" for note in _escaped(self.notes)) + end + rest
        return ("% \\usepackage{booktabs} \\usepackage[T1]{fontenc}\n" + text).encode()


def _escaped(texts: Sequence[str]) -> list[str]:
    """Escapes sentences for LaTeX with pandas, which escapes only cells of tables."""
    table = _frame(["text"], [[text] for text in texts]).to_latex(index=False, header=False, escape=True)
    body = table.partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    return [line.removesuffix(r" \\") for line in body.splitlines()]


def _frame(columns: Sequence[str], rows: Sequence[Sequence[TableCell]]) -> "pd.DataFrame":
    import pandas as pd

    cells = [[printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    return pd.DataFrame(cells, columns=list(columns), dtype=object)


def _plain(cell: TableCell) -> TableCell:
    if isinstance(cell, float):
        return None if cell != cell else f"{cell:.6g}"
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell


def _is_number(cells: Sequence[TableCell]) -> bool:
    return any(isinstance(cell, (int, float)) for cell in cells) and not any(isinstance(cell, str) for cell in cells)
