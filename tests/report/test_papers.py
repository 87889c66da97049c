"""The papers' figures: right numbers, ours never taken for published ones, and nothing of others becomes markup or TeX."""

import csv
import dataclasses
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.config import load
from openmaia.evaluate.bootstrap import Interval
from openmaia.evaluate.sanity import warning
from openmaia.figures.drawing import png, svg
from openmaia.figures.papers import published
from openmaia.figures.papers.levels import Axis, Row, nice
from openmaia.figures.papers.made import PaperFigure, figures
from openmaia.figures.papers.measured import measured, network, share, tool_set
from openmaia.figures.papers.table import Table
from openmaia.figures.papers.written import documents
from openmaia.figures.scene import Box, Dot, Scene, Words
from openmaia.report import write_report
from openmaia.store.run import Owed, Run
from openmaia.units import Unit
from tests.report.making import HOSTILE, Page, evaluation, record, run

NAMES = ["figure-2a", "figure-2b", "figure-2c", "table-a3", "table-a5"]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two units of the papers' network, one of which the papers evaluated."""
    folder = tmp_path_factory.mktemp("resnet")
    target = ["target.name=resnet152", "target.network=resnet152", "target.layers=[layer4]"]
    config = load(["name=res", "units=layer4=0,1", *target, f"paths.runs={folder}"])
    made = Run.create(config)
    for index in (0, 1):
        unit = Unit(target="resnet152", layer="layer4", index=index)
        made.publish(record(unit, config))
        made.write_evaluation(Owed(unit=unit, replicate=0), evaluation(unit))
    return made


@pytest.fixture(scope="module")
def made(resnet: Run) -> dict[str, PaperFigure]:
    return {figure.name: figure for figure in figures([measured(resnet, "res")])}


def rows(figure: PaperFigure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.table.csv().decode())))


# -- what is published -----------------------------------------------------------------------------------------------------


def test_published_averages_are_their_rows_weighted_by_units_or_marked():
    """The paper prints four that are not."""
    marked = 0
    for printed in (one for one in published.levels() if one.layer == published.AVERAGE and one.units):
        mine = [
            one
            for one in published.levels()
            if (one.network, one.method) == (printed.network, printed.method) and one.layer != published.AVERAGE
        ]
        for sign in ("positive", "neutral"):
            mean = np.average([getattr(one, sign) for one in mine], weights=[one.units for one in mine])
            is_right = getattr(printed, sign) == pytest.approx(mean, abs=0.012)
            assert is_right != (f"{sign} {mean:.2f}" in printed.note)
            marked += not is_right
    assert marked == 4


def test_every_published_number_names_its_source():
    everything = [*published.levels(), *published.ablations(), *published.turns(), *published.choices()]
    assert all("paper" in one.source or "published code" in one.source for one in everything)
    assert (len(published.levels()), len(published.ablations()), len(published.choices())) == (58, 9, 3)


def test_the_papers_units_are_those_of_the_shipped_configs():
    for name, layers in published.units().items():
        asked = load([f"configs/{name}.yaml"]).units
        assert {part.split("=")[0]: set(map(int, part.split("=")[1].split(","))) for part in asked.split(":")} == layers


# -- ours beside them ------------------------------------------------------------------------------------------------------


def test_all_figures_and_tables_are_there(made: dict[str, PaperFigure]):
    assert list(made) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_ours_or_the_papers_and_only_ours_have_intervals(made: dict[str, PaperFigure], name: str):
    for row in rows(made[name]):
        assert row["source"] in ("ours", "paper")
        intervals = [value for key, value in row.items() if key.endswith(("_low", "_high"))]
        assert all(bool(value) == (row["source"] == "ours") for value in intervals)
        if "printed_in" in row:
            assert bool(row["printed_in"]) == (row["source"] == "paper")


def test_ours_stand_with_the_same_network_and_layer(made: dict[str, PaperFigure]):
    whole = [row for row in rows(made["figure-2a"]) if row["network"] == "ResNet-152"]
    layer = [row for row in rows(made["table-a3"]) if row["layer"] == "layer4" and row["network"] == "ResNet-152"]
    assert [row["source"] for row in (whole[0], layer[0])] == ["ours", "ours"]
    assert {row["name"] for row in layer[1:]} == {"MILAN", "MAIA (GPT-4V)", "human"}
    assert float(whole[0]["positive"]) == pytest.approx(6.5)
    assert (whole[0]["units"], whole[0]["units_of_the_papers"]) == ("2", "1")


def test_other_weights_are_another_network():
    plain = {"kind": "network", "network": "resnet152", "weights": "", "name": "resnet152"}
    assert network(plain) == "resnet152"
    assert network(plain | {"weights": "mine.safetensors"}) == ""
    assert network(plain | {"network": "timm:resnet18"}) == ""
    assert network(plain | {"kind": "synthetic"}) == "synthetic"


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        ([], "all tools (flux; edits by collage)"),
        (["edit_images", "text2image"], "exemplars only"),
        (["edit_images", "dataset_exemplars"], "generation only (flux)"),
        (["edit_images"], "no editing (flux)"),
        (["display"], "without display (flux)"),
    ],
)
def test_tool_sets_go_by_the_names_of_the_papers_table(without: list[str], expected: str):
    config = dataclasses.asdict(load(["name=x", "units=all", "target.name=net"])) | {"without": without}
    config["generator"] = {"kind": "diffusers", "diffusion": {"model": "org/flux"}}
    assert tool_set(config) == expected


def test_a_network_that_is_not_in_the_papers_says_so(tmp_path: Path):
    found = {figure.name: figure for figure in figures([measured(run(tmp_path), "tiny")])}
    ours = [row for row in rows(found["figure-2a"]) if row["source"] == "ours"]
    assert [row["network"] for row in ours] == ["net (not in the papers)"]
    assert ours[0]["units_of_the_papers"] == ""


def test_published_marks_are_hollow_and_ours_are_filled(made: dict[str, PaperFigure]):
    marks = made["figure-2a"].scene.marks
    legend = 2
    assert sum(isinstance(mark, Dot) for mark in marks) == 2 + legend
    boxes = [mark for mark in marks if isinstance(mark, Box)]
    assert all(box.is_hollow for box in boxes)
    assert len(boxes) == 2 * 13 + legend
    names = [mark.text for mark in marks if isinstance(mark, Words) and mark.text.startswith("paper: ")]
    assert len(names) == 13


def test_published_turns_are_hollow_bars_that_say_how_vague_they_are(made: dict[str, PaperFigure]):
    boxes = [mark for mark in made["figure-2c"].scene.marks if isinstance(mark, Box)]
    assert [box.is_hollow for box in boxes] == [False, True, False, True, True, True]
    texts = {mark.text for mark in made["figure-2c"].scene.marks if isinstance(mark, Words)}
    assert {"about 5", "about 7", "more than 10", "3.0 (n = 2)"} <= texts


def test_usage_is_ours_alone_and_says_so(made: dict[str, PaperFigure]):
    assert {row["source"] for row in rows(made["figure-2b"])} == {"ours"}
    assert "plot without numbers" in made["figure-2b"].table.notes[0]


def test_a_share_has_wilsons_interval():
    """Of 10 hits in 12, by the formula of Wilson (1927) with z = 1.96."""
    p, n, z = 10 / 12, 12, 1.959964
    centre, half = (p + z * z / (2 * n)) / (1 + z * z / n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)  # fmt: skip
    found = share([True] * 10 + [False] * 2)
    assert (found.mean, found.low, found.high) == pytest.approx((p, centre - half, centre + half), abs=1e-5)


def test_a_metric_that_fails_a_sanity_test_is_marked_under_the_figure(made: dict[str, PaperFigure]):
    assert warning("difference")
    for name in ("figure-2a", "table-a3", "table-a5"):
        assert any(warning("difference") in note for note in made[name].table.notes)


def test_a_run_without_evaluations_leaves_the_published_rows(tmp_path: Path):
    empty = Run.create(load(["name=none", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    found = {figure.name: figure for figure in figures([measured(empty, "none")])}
    assert {row["source"] for row in rows(found["figure-2a"])} == {"paper"}
    assert rows(found["figure-2b"]) == []
    assert len(dict(documents(found["figure-2b"]))) == 4


# -- drawing ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_marks_lie_within_the_figure(made: dict[str, PaperFigure], name: str):
    scene = made[name].scene
    for mark in scene.marks:
        xs = (mark.x1, mark.x2) if hasattr(mark, "x1") else (mark.x,)  # pyright: ignore[reportAttributeAccessIssue]
        ys = (mark.y1, mark.y2) if hasattr(mark, "y1") else (mark.y,)  # pyright: ignore[reportAttributeAccessIssue]
        assert all(0 <= x <= scene.width for x in xs)
        assert all(0 <= y <= scene.height for y in ys)


@pytest.mark.parametrize(("step", "expected"), [(0.13, 0.2), (1, 1), (2.1, 5), (51, 100)])
def test_axes_step_in_round_numbers(step: float, expected: float):
    assert nice(step) == pytest.approx(expected)


def test_an_axis_of_equal_values_has_room():
    zero = Interval(mean=0.0, low=0.0, high=0.0)
    axis = Axis.over([Row(name="", positive=zero, neutral=zero, is_published=False)])
    assert axis.x(1.0) > axis.x(0.0)


def test_svg_and_png_show_the_same_marks():
    scene = Scene(label="x", width=60, height=30, marks=(Dot(x=20, y=15, radius=6, colour="#ff0000"), Box(x=40, y=10, width=10, height=10, colour="#0000ff", is_hollow=True)))  # fmt: skip
    root = ElementTree.fromstring(svg(scene))
    assert [child.tag.rsplit("}")[-1] for child in root] == ["title", "rect", "circle", "rect"]
    pixels = np.asarray(Image.open(io.BytesIO(png(scene))))
    scale = pixels.shape[1] / 60
    at = lambda x, y: tuple(int(v) for v in pixels[round(y * scale), round(x * scale)])  # noqa: E731
    assert (at(20, 15), at(45, 15), at(5, 5)) == ((255, 0, 0), (255, 255, 255), (255, 255, 255))
    assert at(40, 15)[2] > at(40, 15)[0]


@pytest.mark.parametrize("text", [HOSTILE, "\x00\x0b\ud800", "ю 中 é", "\\input{/etc/passwd} $x_1^2$ & 100% #~"])
def test_no_text_of_others_is_markup_or_tex(text: str):
    scene = Scene(label=text, width=60, height=30, marks=(Words(x=1, y=9, text=text),))
    root = ElementTree.fromstring(svg(scene))
    assert [child.tag.rsplit("}")[-1] for child in root] == ["title", "rect", "text"]
    assert png(scene).startswith(b"\x89PNG")
    tex = Table(caption=text, columns=("a",), rows=((text,),), notes=(text,)).latex().decode()
    body = "\n".join(line for line in tex.splitlines() if not line.startswith(("%", r"\begin", r"\end")))
    assert r"\input" not in body
    assert not re.search(r"(?<!\\)[&#%$_^~]", re.sub(r" & | \\\\", "", body))


def test_latex_is_a_booktabs_table_with_numbers_to_the_right():
    found = Table(caption="A_b", columns=("name", "positive_low"), rows=(("x", 1.234), ("y", None)), notes=()).latex()
    text = found.decode()
    assert r"\begin{tabular}{lr}" in text
    assert r"\caption{A\_b}" in text
    assert r"x & $1.23$ \\" in text
    assert r"y &  \\" in text


def test_a_spreadsheet_gets_no_formula():
    found = Table(caption="", columns=("a",), rows=(("=1+1",), (-1.5,)), notes=()).csv().decode()
    assert found.splitlines() == ["a", "'=1+1", "-1.5"]


# -- the page and the command ----------------------------------------------------------------------------------------------


def test_the_report_has_a_page_of_them_with_files_beside_it(tmp_path: Path):
    made = run(tmp_path, text=HOSTILE)
    folder = write_report([made]).parent
    page = Page((folder / "papers.html").read_text())
    assert len(page.all("svg")) == len(NAMES)
    assert not page.all("script") and not page.all("img")
    assert "paper: human" in page.text
    for name in NAMES:
        assert {path.suffix for path in (folder / "papers").glob(f"{name}.*")} == {".svg", ".csv", ".tex"}
    links = [link["href"] for link in page.all("a")]
    assert all((folder / link).exists() for link in links)
    assert "papers.html" in [link["href"] for link in Page((folder / "index.html").read_text()).all("a")]


def test_several_runs_are_compared_on_the_page(tmp_path: Path):
    index = write_report([run(tmp_path / "a"), run(tmp_path / "b", name="other")])
    text = Page((index.parent / "papers.html").read_text()).text
    assert "tiny minus other" in text
    assert warning("auc") in text


def test_the_command_writes_every_figure_in_four_forms(resnet: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from openmaia.commands.figures import figures as command

    command([resnet.files.root], str(tmp_path / "to"))
    written = {path.name for path in (tmp_path / "to").iterdir()}
    assert written == {f"{name}.{kind}" for name in NAMES for kind in ("png", "svg", "csv", "tex")}
    assert str(tmp_path / "to") in capsys.readouterr().out
