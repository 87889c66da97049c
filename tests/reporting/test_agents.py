"""The figures about the agents: right numbers, in the page and as files beside it."""

import csv
import dataclasses
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from openmaia.analysis.agents import compute_statistics
from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.reporting.browser.write import write_report
from openmaia.runs.summary import summary
from tests.reporting.making import HOSTILE, Page, record, run, turn

UNIT = Unit(target="net", layer="layer4", index=0)
CONFIG = load(["name=x", "units=all", "target.name=net"])


def converged(lists: list[tuple[str, ...]], *labels: str) -> int | None:
    turns = tuple(turn(n, "", hypotheses=found) for n, found in enumerate(lists))
    return dataclasses.replace(record(UNIT, CONFIG), turns=turns, labels=labels).converged


def test_convergence_is_the_first_turn_that_lists_the_label():
    assert converged([(), ("cats", "dogs"), ("dogs",)], "dogs") == 2


def test_convergence_needs_all_labels_in_one_list():
    assert converged([("dogs",), ("cats",), ("cats", "dogs")], "dogs", "cats") == 3


def test_case_punctuation_and_words_around_a_label_do_not_count():
    assert converged([("cats",), ("It likes the *Red  circle*, always",)], "red circle") == 2


def test_label_is_compared_by_whole_words():
    assert converged([("hotdogs",), ("red and circle",)], "dogs") is None
    assert converged([("red and circle",)], "red circle") is None


def test_without_labels_nothing_converges():
    assert converged([("cats",)]) is None
    assert converged([("cats",)], "…") is None


def test_conversation_counts_opening_replies_and_what_came_back_between():
    assert summary(record(UNIT, CONFIG))["messages"] == 2 + 3 + 2


def test_tokens_of_a_record_are_kept_by_kind():
    found = summary(record(UNIT, CONFIG))
    assert (found["prompt_tokens"], found["cached_tokens"], found["generated_tokens"]) == (3000, 0, 600)


def test_usage_counts_an_investigation_once_however_often_it_called():
    one = summary(record(UNIT, CONFIG)) | {"tools": {"display": 40, "edit_images": 1}}
    found = compute_statistics([one, one | {"tools": {"display": 1}}])
    assert {tool: share.mean for tool, share in found.usage.items()} == {"display": 1.0, "edit_images": 0.5}
    assert found.calls == {"display": 41, "edit_images": 1}


def test_usage_has_wilsons_interval():
    """Of 10 investigations in 12, by the formula of Wilson (1927) with z = 1.96."""
    p, n, z = 10 / 12, 12, 1.959964
    centre, half = (p + z * z / (2 * n)) / (1 + z * z / n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)  # fmt: skip
    one = summary(record(UNIT, CONFIG)) | {"tools": {"display": 1}}
    found = compute_statistics([one] * 10 + [one | {"tools": {}}] * 2).usage["display"]
    assert (found.mean, found.low, found.high) == pytest.approx((p, centre - half, centre + half), abs=1e-5)


def test_tables_and_figures_lie_beside_the_report(tmp_path: Path):
    folder = write_report([run(tmp_path)]).parent / "figures"
    tables = {path.stem: list(csv.DictReader(io.StringIO(path.read_text()))) for path in folder.glob("*.csv")}
    assert {row["tool"]: float(row["share_of_investigations"]) for row in tables["tools"]}["text2image"] == 1
    assert tables["length"] == [{"turns": "3", "messages_least": "7", "messages_most": "7", "investigations": "3"}]
    assert tables["convergence"] == [{"turn": "", "investigations": "2"}]
    assert {path.stem for path in folder.glob("*.svg")} == set(tables)


def test_figures_are_well_formed_whatever_tools_are_called(tmp_path: Path):
    made = run(tmp_path, text=HOSTILE + "\x00\x1b=cmd()")
    folder = write_report([made]).parent / "figures"
    for path in folder.glob("*.svg"):
        root = ElementTree.parse(path).getroot()
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            "svg",
            "g",
            "defs",
            "clipPath",
            "path",
            "use",
            "text",
            "rect",
        }


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path):
    folder = write_report([run(tmp_path, text="=cmd()")]).parent / "figures"
    assert "'=cmd()" in (folder / "tools.csv").read_text()


def test_report_has_a_section_about_the_agents(tmp_path: Path):
    text = Page(write_report([run(tmp_path)]).with_name("run.html").read_text()).text
    for said in (
        "Agents",
        "used each tool at least once",
        "median 3 turns, 7 messages",
        "final hypothesis first appeared",
    ):
        assert said in text


def test_several_runs_have_figures_of_their_own(tmp_path: Path):
    index = write_report([run(tmp_path / "a"), run(tmp_path / "b")])
    assert len(list(index.parent.rglob("tools.csv"))) == 2
