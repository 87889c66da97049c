"""Figures and tables: what they show, and that no text of others becomes markup, a formula or TeX."""

import io
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from openmaia.reporting.figures import charts
from openmaia.reporting.figures.row_chart import ChartRow, RowMark, point_key, row_chart
from openmaia.reporting.figures.style import NEUTRAL, POSITIVE, png, svg
from openmaia.reporting.figures.table import DataTable
from tests.reporting.making import HOSTILE

TEXTS = [HOSTILE, "a\x00\x0b\ud800b", "ю 中 é", "\\input{/etc/passwd} $x_1^2$ & 100% #~", 'a" style="fill: red']


def texts(data: str) -> list[str]:
    return [
        "".join(element.itertext()) for element in ElementTree.fromstring(data).iter() if element.tag.endswith("}text")
    ]


def numbers(figure: Figure) -> list[str]:
    """The texts of all axes that lie within the figure."""
    figure.draw_without_rendering()
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def assert_inside(figure: Figure) -> None:
    figure.draw_without_rendering()
    width, height = figure.bbox.width, figure.bbox.height
    for axes in figure.axes:
        for text in (*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()):
            box = text.get_window_extent()
            assert not text.get_text() or (
                box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
            )


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_literal(text: str):
    rows = [ChartRow(label=text, note=text, text=text, marks=(RowMark(value=1.0),))]
    figure = row_chart([rows], [point_key(POSITIVE, False, "ours")])
    drawn = svg(figure, text)
    elements = list(ElementTree.fromstring(drawn).iter())
    names = {element.tag.rpartition("}")[2] for element in elements}
    assert not any("style" in element.attrib for element in elements)
    assert names <= {"svg", "g", "path", "use", "text", "defs", "clipPath", "rect"}
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    assert shown in texts(drawn) or len(shown) > 42
    assert png(figure).startswith(b"\x89PNG")


def test_hostile_names_stay_texts_in_every_chart():
    name = "<b>$x_1$</b>"
    pairs = [charts.ScorePair(label=name, link="units/a.html", own=0.9, other=0.4)]
    for figure in (
        charts.draw_share_bars({name: 0.5}),
        charts.value_strips({name: [1.0, 2.0]}, first=name),
        charts.draw_score_pairs(pairs),
        row_chart([[ChartRow(label=name, is_heading=True)]], []),
    ):
        assert name in texts(svg(figure, name))


def test_equal_figures_are_equal_files():
    one, other = (charts.draw_share_bars({"a": 0.5, "b": 0.25}) for _ in range(2))
    assert svg(one, "x") == svg(other, "x")
    assert png(one) == png(other)


def test_row_links_to_its_unit_and_says_its_scores():
    pairs = [charts.ScorePair(label="layer4/7", link="units/7.html", own=0.9, other=0.4)]
    drawn = svg(charts.draw_score_pairs(pairs), "x", {"units/7.html": "layer4/7: own 0.90"})
    links = [element for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("}a")]
    assert links
    assert all(link.attrib["href"] == "units/7.html" and link[0].text == "layer4/7: own 0.90" for link in links)


def test_published_marks_are_hollow_and_ours_are_filled():
    marks = (RowMark(value=1.0), RowMark(value=2.0, colour=NEUTRAL, is_published=True))
    (axes,) = row_chart([[ChartRow(label="x", marks=marks)]], []).axes
    faces = [line.get_markerfacecolor() for line in axes.get_lines()]
    assert faces == [POSITIVE, "#ffffff"]


def test_png_shows_what_the_svg_shows():
    pixels = np.asarray(Image.open(io.BytesIO(png(charts.draw_share_bars({"a": 1.0})))).convert("RGB"))
    blue = np.abs(pixels.astype(int) - (0x2F, 0x62, 0xD9)).max(axis=2) < 3
    assert blue.sum() > 5000
    assert pixels.shape == (64, 720, 3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.13, 0.61], (0, 0.8)), ([-0.32, 1.97], (-0.5, 2)), ([0.0], (0, 1)), ([51.0], (0, 60))],
)
def test_axis_ends_at_round_numbers(values: list[float], expected: tuple[float, float]):
    (axes,) = row_chart([[ChartRow(label="x", marks=tuple(RowMark(value=value) for value in values))]], []).axes
    assert axes.get_xlim() == pytest.approx(expected)


def test_axis_that_need_not_begin_at_zero_covers_its_numbers():
    marks = (RowMark(value=0.71, interval=(0.68, 0.74)),)
    (axes,) = row_chart([[ChartRow(label="x", marks=marks, spread=(0.55, 0.8))]], [], is_from_zero=False).axes
    low, high = axes.get_xlim()
    assert 0.4 < low <= 0.55 and 0.8 <= high < 0.95


def test_columns_that_are_narrow_leave_ticks_out():
    figure = charts.draw_count_columns({1: 3, 60: 1}, {"turns": {n: str(n) for n in range(1, 61)}})
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert len(boxes) > 5


def test_labels_lie_within_the_figure():
    long = "a-very-long-name-of-something/" * 3
    rows = [ChartRow(label=long, note="n", text="-12.34 / -12.34", marks=(RowMark(value=1.0),))] * 3
    pairs = [charts.ScorePair(label=f"{long}{n}", link="", own=0.9, other=0.4) for n in range(9)]
    assert_inside(row_chart([rows, rows], []))
    assert_inside(charts.draw_share_bars({long: 1.0, "b": 0.5}))
    assert_inside(
        charts.draw_count_columns({2: 777, 5: 1}, {"turn": {2: "2", 5: "5"}, "messages": {2: "11-14"}}, ("never", 9))
    )
    assert_inside(charts.draw_score_pairs(pairs))
    assert_inside(charts.value_strips({"unrelated prompts": [-123.4, 0.001], "positive": []}, first="positive"))


def test_column_of_the_rest_is_the_last():
    (axes,) = charts.draw_count_columns({2: 7, 5: 1}, {"turn": {2: "2", 5: "5"}}, ("never", 9)).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [0, 7, 0, 0, 1, 9]


@pytest.mark.parametrize("text", TEXTS)
def test_latex_escapes_text(text: str):
    tex = DataTable(caption="c", columns=("a",), rows=((text,),), notes=(text,)).latex().decode()
    body = "\n".join(line for line in tex.splitlines() if not line.startswith(("%", r"\begin", r"\end")))
    assert r"\input" not in body
    assert not re.search(r"(?<!\\)[&#%$_^~]", re.sub(r" & | \\\\", "", body))


def test_latex_is_a_booktabs_table_with_numbers_to_the_right():
    text = DataTable(caption="A", columns=("name", "positive_low"), rows=(("x", 1.234), ("y", None))).latex().decode()
    assert r"\begin{tabular}{lr}" in text
    assert "name & positive low" in text
    assert r"x & $1.23$ \\" in text
    assert r"y &  \\" in text


def test_csv_has_no_formulas_and_six_digits():
    table = DataTable(columns=("a", "b"), rows=(("=1+1", 1 / 3), (-1.5, None), (2, float("nan"))))
    assert table.csv().decode().splitlines() == ["a,b", "'=1+1,0.333333", "-1.5,", "2,"]


def test_importing_the_agent_loads_no_plotting():
    import subprocess
    import sys

    code = "import openmaia.agent.loop, sys; print(*{'matplotlib', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.split() == []
