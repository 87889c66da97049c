"""The papers' figures: right numbers, ours never taken for published ones, and nothing of others becomes markup or TeX."""

import csv
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest

from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.sanity import warning
from openmaia.reporting.browser.write import write_report
from openmaia.reporting.figures.papers import (
    AVERAGE,
    PaperFigure,
    figure_2,
    measured,
    name_tool_set,
    paper_figures,
    published,
    published_units,
    recognize_network,
)
from openmaia.reporting.figures.row_chart import draw_beside
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.samples import store_evaluation
from tests.reporting.making import HOSTILE, Page, evaluation, record, run

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
        store_evaluation(made, InvestigationId(unit=unit, replicate=0), evaluation(unit))
    return made


@pytest.fixture(scope="module")
def made(resnet: Run) -> dict[str, PaperFigure]:
    return {figure.name: figure for figure in paper_figures([measured(resnet, "res")])}


def rows(figure: PaperFigure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.table.csv().decode())))


# -- what is published -----------------------------------------------------------------------------------------------------


def test_published_averages_are_their_rows_weighted_by_units_or_marked():
    """The paper prints four that are not."""
    marked = 0
    for printed in (one for one in published("predictive") if one["layer"] == AVERAGE and one["units"]):
        mine = [
            one
            for one in published("predictive")
            if (one["network"], one["method"]) == (printed["network"], printed["method"]) and one["layer"] != AVERAGE
        ]
        for sign in ("positive", "neutral"):
            mean = np.average([float(one[sign]) for one in mine], weights=[int(one["units"]) for one in mine])
            is_right = float(printed[sign]) == pytest.approx(mean, abs=0.012)
            assert is_right != (f"{sign} {mean:.2f}" in printed["note"])
            marked += not is_right
    assert marked == 4


def test_every_published_number_names_its_source():
    tables = {name: published(name) for name in ("predictive", "ablation", "turns", "choices")}
    sources = [one["source"] for rows in tables.values() for one in rows]
    assert all("paper" in source or "published code" in source for source in sources)
    assert [len(rows) for rows in tables.values()] == [58, 9, 3, 3]


def test_papers_units_are_those_of_the_shipped_configs():
    for name, layers in published_units().items():
        asked = load([f"configs/{name}.yaml"]).units
        found = {part.split("=")[0]: sorted(map(int, part.split("=")[1].split(","))) for part in asked.split(":")}
        assert found == layers


# -- ours beside them ------------------------------------------------------------------------------------------------------


def test_all_figures_and_tables_are_there(made: dict[str, PaperFigure]):
    assert list(made) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_row_is_ours_or_the_papers_and_only_ours_have_intervals(made: dict[str, PaperFigure], name: str):
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
    assert recognize_network(plain) == "resnet152"
    assert recognize_network(plain | {"weights": "mine.safetensors"}) == ""
    assert recognize_network(plain | {"network": "timm:resnet18"}) == ""
    assert recognize_network(plain | {"kind": "synthetic"}) == "synthetic"


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
    config["generator"] = {"kind": "diffusers", "model": "org/flux"}
    assert name_tool_set(config) == expected


def test_tool_set_names_the_generator_if_it_edits():
    config = {"generator": {"kind": "diffusers", "model": "org/flux2"}, "editor": {"kind": "generator"}}
    assert name_tool_set(config) == "all tools (flux2; edits by flux2)"


def test_network_that_is_not_in_the_papers_says_so(tmp_path: Path):
    found = {figure.name: figure for figure in paper_figures([measured(run(tmp_path), "tiny")])}
    ours = [row for row in rows(found["figure-2a"]) if row["source"] == "ours"]
    assert [row["network"] for row in ours] == ["net (not in the papers)"]
    assert ours[0]["units_of_the_papers"] == ""


def test_published_rows_are_hollow_and_named(made: dict[str, PaperFigure]):
    axes = made["figure-2a"].figure.axes
    faces = [line.get_markerfacecolor() for one in axes for line in one.get_lines() if line.get_marker() != "None"]
    assert faces.count("#ffffff") == 2 * 13
    assert len(faces) >= 2 * 13 + 2
    names = [text.get_text() for one in axes for text in one.texts if text.get_text().startswith("paper: ")]
    assert len(names) == 13


def test_published_turns_are_hollow_bars_that_say_how_vague_they_are(made: dict[str, PaperFigure]):
    (axes,) = made["figure-2c"].figure.axes
    white = (1.0, 1.0, 1.0, 1.0)
    assert [bar.get_facecolor() == white for bar in axes.patches] == [False, True, True, True]
    texts = {text.get_text() for text in axes.texts}
    assert {"about 5", "about 7", "more than 10", "3.0 (n = 2)"} <= texts


def test_usage_is_ours_alone_and_says_so(made: dict[str, PaperFigure]):
    assert {row["source"] for row in rows(made["figure-2b"])} == {"ours"}
    assert "plot without numbers" in made["figure-2b"].table.notes[0]


def test_metric_that_fails_a_sanity_test_is_marked_under_the_figure(made: dict[str, PaperFigure]):
    assert warning("difference")
    for name in ("figure-2a", "table-a3", "table-a5"):
        assert any(warning("difference") in note for note in made[name].table.notes)


def test_run_without_evaluations_leaves_the_published_rows(tmp_path: Path):
    empty = Run.create(load(["name=none", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    found = {figure.name: figure for figure in paper_figures([measured(empty, "none")])}
    assert {row["source"] for row in rows(found["figure-2a"])} == {"paper"}
    assert rows(found["figure-2b"]) == []
    assert len(dict(found["figure-2b"].documents())) == 4


# -- the page and the command ----------------------------------------------------------------------------------------------


def test_report_has_a_page_of_them_with_files_beside_it(tmp_path: Path):
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


def test_command_writes_every_figure_in_four_forms(resnet: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from openmaia.cli.commands.exports import figures as command

    command([resnet.files.root], str(tmp_path / "to"))
    written = {path.name for path in (tmp_path / "to").iterdir()}
    assert written == {f"{name}.{kind}" for name in NAMES for kind in ("png", "svg", "csv", "tex")} | {
        "figure-2.png",
        "figure-2.svg",
    }
    assert str(tmp_path / "to") in capsys.readouterr().out


def test_figure_2_has_three_panels_with_the_marks_of_its_parts(made: dict[str, PaperFigure]):
    parts = [made[name] for name in ("figure-2a", "figure-2b", "figure-2c")]
    whole = draw_beside(figure_2(parts))
    assert len(whole.axes) == sum(len(part.figure.axes) for part in parts) and len(whole.legends) == 3
    assert [text.get_text() for text in whole.texts] == ["a", "b", "c"]
    labels = [[text.get_text() for text in axes.texts] for axes in whole.axes]
    assert labels == [[text.get_text() for text in axes.texts] for part in parts for axes in part.figure.axes]
    width = whole.get_size_inches()[0] / 3
    for part in parts:
        assert part.figure.get_size_inches()[0] == pytest.approx(width)
