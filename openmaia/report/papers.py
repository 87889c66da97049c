"""The page of the papers' figures and tables, and of runs against each other, with the figures as files beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from openmaia.evaluate.compared import MEASURES, Compared, Difference, compared
from openmaia.evaluate.sanity import warning
from openmaia.figures.drawing import svg
from openmaia.figures.papers.made import PAPER, PaperFigure, figures
from openmaia.figures.papers.measured import Measured, measured
from openmaia.figures.papers.table import Cell, Table
from openmaia.store.files import Files
from openmaia.store.run import Run

PAGE = "papers.html"
FOLDER = "papers/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFigure:
    """drawn: SVG, escaped where it was made. rows: (whether it is published, its cells)."""

    figure: PaperFigure
    drawn: Markup
    rows: tuple[tuple[bool, tuple[str, ...]], ...]

    @property
    def file(self) -> str:
        return f"{FOLDER}{self.figure.name}"

    @property
    def table(self) -> Table:
        return self.figure.table


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDifference:
    """blind: what the measure does not notice, by our sanity tests."""

    what: str
    blind: str
    found: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPair:
    pair: Compared
    rows: tuple[ShownDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Papers:
    runs: tuple[Measured, ...]
    figures: tuple[ShownFigure, ...]
    pairs: tuple[ShownPair, ...]


def papers(runs: Sequence[tuple[Run, str]]) -> Papers:
    """Raises StoreError for a damaged evaluation."""
    found = tuple(measured(run, name) for run, name in runs)
    pairs = compared(runs, min(one.resamples for one in found)) if len(runs) > 1 else []
    return Papers(
        runs=found,
        figures=tuple(_figure(one) for one in figures(found)),
        pairs=tuple(ShownPair(pair=pair, rows=tuple(_differences(pair))) for pair in pairs),
    )


def write(files: Files, found: Papers) -> None:
    """The PNG is left to `openmaia figures`: drawing all of them takes a second or two."""
    for one in found.figures:
        files.write(f"report/{one.file}.svg", svg(one.figure.scene))
        files.write(f"report/{one.file}.csv", one.table.csv())
        files.write(f"report/{one.file}.tex", one.table.latex())


def _figure(figure: PaperFigure) -> ShownFigure:
    rows = tuple((row[0] == PAPER, tuple(map(_text, row))) for row in figure.table.rows)
    return ShownFigure(figure=figure, drawn=Markup(svg(figure.scene, is_alone=False).decode()), rows=rows)


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return "" if cell != cell else f"{cell:.3g}".replace("-", "−")
    return "" if cell is None else str(cell)


def _differences(pair: Compared) -> Iterator[ShownDifference]:
    for one in pair.differences:
        yield ShownDifference(what=MEASURES[one.measure], blind=warning(one.measure), found=one)
