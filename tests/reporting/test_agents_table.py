"""The table of agents: rows are added and replaced, and the page shows what the file holds."""

from pathlib import Path

import pytest

from openmaia.analysis.benchmark import TABLE_MEASURES
from openmaia.core.errors import UsageError
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.reporting.agents_table import AgentRow, add_rows, check_table

HALF = Interval(mean=0.5, low=0.25, high=0.75)


def row(agent: str, known: str = "scene-graphs", value: Interval | None = HALF) -> AgentRow:
    values = {measure.name: value if measure.name == "exact" else None for measure in TABLE_MEASURES}
    return AgentRow(known=known, agent=agent, backbone="a | b <i>", units=20, measured="2026-11-29", values=values)


def test_rows_are_added_and_replaced(tmp_path: Path):
    path = tmp_path / "new" / "agents.csv"
    add_rows(str(path), [row("one"), row("two", known="classes")])
    page = Path(add_rows(str(path), [row("three"), row("one", value=Interval(mean=1.0, low=0.8, high=1.0))]))
    lines = path.read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        ["classes", "two"],
        ["scene-graphs", "one"],
        ["scene-graphs", "three"],
    ]
    text = page.read_text()
    assert page == path.with_suffix(".md") and text.index("## classes") < text.index("## scene-graphs")
    assert "| 100 % (80 % to 100 %) |" in text and "| 50 % (25 % to 75 %) |" in text and "n/a" in text
    assert "a \\| b \\<i\\>" in text, "a name is no markup"
    before = path.read_bytes()
    add_rows(str(path), [])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("exact_low", "exact_least"), "lacks the column exact_low"),
        (lambda text: text.replace(",0.25,", ",0.6,"), "row 2: '0.5, 0.6, 0.75' is no value"),
        (lambda text: text.replace(",0.25,", ",nan,"), "is no value"),
        (lambda text: text.replace(",0.25,", ",,"), "is no value"),
        (lambda text: text.replace(",20,", ",many,"), "'many' is no number of units"),
        (lambda text: text.replace("graphs,one", "graphs,o\x1bne"), "is no value of agent"),
        (lambda text: text + '"', "is no table"),
        (lambda text: "", "lacks the column known"),
    ],
)
def test_a_file_that_is_no_table_of_agents_is_refused(tmp_path: Path, change, said: str):
    path = tmp_path / "agents.csv"
    add_rows(str(path), [row("one")])
    path.write_text(change(path.read_text()))
    changed = path.read_bytes()
    for attempt in (lambda: check_table(str(path)), lambda: add_rows(str(path), [row("two")])):
        with pytest.raises(UsageError, match=said) as caught:
            attempt()
        assert caught.value.message.isprintable() and path.read_bytes() == changed


def test_another_file_than_a_table_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"ends in \.csv"):
        check_table(str(tmp_path / "agents.md"))


def test_another_page_of_that_name_stays(tmp_path: Path):
    (tmp_path / "README.md").write_text("# Mine\n")
    for attempt in (check_table, lambda path: add_rows(path, [row("one")])):
        with pytest.raises(UsageError, match="is another page"):
            attempt(str(tmp_path / "README.csv"))
    assert (tmp_path / "README.md").read_text() == "# Mine\n" and not (tmp_path / "README.csv").exists()
