"""Each figure as PNG, SVG, CSV and LaTeX."""

from collections.abc import Iterator

from openmaia.figures.drawing import png, svg
from openmaia.figures.papers.made import PaperFigure


def documents(figure: PaperFigure) -> Iterator[tuple[str, bytes]]:
    """(file name, content)."""
    yield f"{figure.name}.svg", svg(figure.scene)
    yield f"{figure.name}.png", png(figure.scene)
    yield f"{figure.name}.csv", figure.table.csv()
    yield f"{figure.name}.tex", figure.table.latex()
