"""Labels, prompts and names with control characters, markup, formulas and commands, through everything that shows them."""

import csv
import io
import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import pytest

from openmaia.analysis.conduct import conduct
from openmaia.cli.commands.common import fail
from openmaia.cli.terminal.conversation import ConversationView
from openmaia.cli.terminal.output import Terminal, say, show_table
from openmaia.cli.terminal.runs import show_conduct, show_state
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.messages import AnswerFormat
from openmaia.reporting.browser.write import write_report
from openmaia.reporting.figures.table import DataTable
from openmaia.reporting.trace import write_trace
from openmaia.reporting.tracking.rows import make_cells, make_point
from openmaia.runs.run import Run
from tests.helpers.hostile import MEGABYTE, TEXTS
from tests.helpers.sweeping import sources
from tests.reporting.making import Page, run

EVERY = {**TEXTS, "1 MB": MEGABYTE}
ALL = pytest.mark.parametrize("text", EVERY.values(), ids=EVERY.keys())


@dataclass(frozen=True)
class Told:
    """A run that has a text wherever a text of others can stand."""

    text: str
    run: Run
    folder: Path
    report: Path


RUNS = [
    pytest.param(TEXTS["script"], id="the script"),
    pytest.param(" ".join(TEXTS.values()), id="all at once"),
    pytest.param(MEGABYTE[:150_000], id="150 kB"),
    pytest.param(MEGABYTE, id="1 MB", marks=[pytest.mark.slow, pytest.mark.nightly]),
]
"""The texts of whole runs, which take longer."""


@pytest.fixture(scope="module", params=RUNS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("told")
    text = request.param.encode(errors="replace").decode()  # configs, replies and records are UTF-8
    made = run(folder / "runs", text=text, layer=text[:50])
    return Told(text=text, run=made, folder=folder, report=write_report([made]).parent)


def assert_harmless(shown: str) -> None:
    acting = {letter for letter in set(shown) if unicodedata.category(letter) in ("Cc", "Cf", "Cs") and letter != "\n"}
    assert not acting


def test_terminal_shows_no_control_characters(told: Told, capsys: pytest.CaptureFixture[str]):
    text, made = told.text, told.run
    records = [made.record(investigation) for investigation in made.done()]
    show_state(made, 10)
    assert len(capsys.readouterr().out) < 30_000
    show_state(made, 10)
    ConversationView(made.files).show(records[0].turns[0])
    show_conduct(text[:100], conduct(records, AnswerFormat()))
    captured = capsys.readouterr()
    assert "turn 1" in captured.out
    assert_harmless(captured.out + captured.err)


@ALL
def test_line_shows_no_control_characters(text: str, capsys: pytest.CaptureFixture[str]):
    say(text)
    show_table(text[:100], [text[:100]], [[text[:100]]])
    with Terminal() as terminal:
        terminal.say(text)
        terminal.progress("stage", 1, 1, text)
    with pytest.raises(SystemExit):
        fail(text, 2)
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert_harmless(captured.out + captured.err)


def test_report_shows_text_as_text(told: Told):
    for path in told.report.rglob("*.html"):
        page = Page(path.read_text())
        attributes = [pair for _, given in page.elements for pair in given.items()]
        links = [value.strip().lower() for name, value in attributes if name in ("href", "src", "action", "data")]
        assert not [link for link in links if link.startswith(("javascript:", "http:", "//"))]
        assert not [name for name, _ in attributes if name.startswith("on")]
        assert len([script for script in page.all("script") if not script.get("src")]) <= 1
        assert "7*7" in page.text or "7*7" not in told.text, "templates are not expanded twice"


def test_weights_and_biases_get_no_control_characters(told: Told):
    (summary, *_) = told.run.headers()
    cells = [*make_cells(summary, {}, None), *make_point(summary, 1).values()]
    assert_harmless("".join(cell for cell in cells if isinstance(cell, str)))


def test_trace_is_json(told: Told):
    stream = io.BytesIO()
    assert write_trace(told.run, stream) == 3
    assert json.loads(stream.getvalue())


def test_files_stay_in_the_run_directory(told: Told):
    assert {path.name for path in told.folder.iterdir()} == {"runs"}
    assert {path.name for path in (told.folder / "runs").iterdir()} == {"tiny"}
    assert not Path("owned").exists() and not Path("/etc/passwd.parquet").exists()


@ALL
def test_csv_holds_text_and_no_formula(text: str):
    table = DataTable(columns=("label", "value"), rows=((text, 1.0), ("plain", 2.0)))
    limit = csv.field_size_limit(10_000_000)
    try:
        rows = list(csv.reader(io.StringIO(table.csv().decode())))
    finally:
        csv.field_size_limit(limit)
    assert len(rows) == 3 and not rows[1][0].startswith(("=", "+", "-", "@", "\t", "\r"))


@ALL
def test_latex_runs_no_command(text: str):
    table = DataTable(columns=("label", "value"), rows=((text, 1.0),), caption="c", notes=("n",)).latex().decode()
    assert "\\input{" not in table and "\\write18" not in table
    assert_harmless(table)


def test_name_that_is_not_utf8_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="pictures.folder=/data/.udcff. is not UTF-8"):
        load([*sources(tmp_path), "pictures.folder=/data/\udcff"])
