"""What was measured in the world of drawn scenes: the committed page, figures and tables are of the same measurement."""

import csv
import json
from collections import Counter

from measure.world import prompts, results
from measure.world.__main__ import OUT
from measure.world.eyes import evaluate
from measure.world.training.drawing import SHORTCUT
from openmaia.evaluation.analysis.statistics import proportion


def test_page_says_what_the_figures_are():
    assert results.text() == results.FILE.read_text()


def test_figures_about_prompts_are_those_of_the_grammar_of_today():
    figures = json.loads(OUT.read_text())["prompts"]
    found = prompts.measure(True)
    assert {writer: figures[writer] for writer in found} == json.loads(json.dumps(found))
    with prompts.CSV.open(newline="") as file:
        outcomes = [row["outcome"] for row in csv.DictReader(file)]
    counted = [outcome for each in found.values() for outcome, count in each["outcomes"].items() for _ in range(count)]
    assert sorted(outcomes) == sorted(counted)
    assert [each["prompts"] for each in found.values()] == [150, 150]


def test_readings_tell_what_is_extra_lost_and_silent():
    def outcome(prompt: str, drawn: str, outside: str = "") -> str:
        return prompts.understood(prompt, drawn, outside).outcome

    assert outcome("two red boats on the sea", "2 boat red; sea") == "whole"
    assert outcome("boats on the sea", "+ boat; sea") == "whole"
    assert outcome("a boat and a zyzzyva", "boat", "zyzzyva") == "rest"
    assert outcome("a boat and a zyzzyva", "boat") == "lost"
    assert outcome("a boat", "boat", "zyzzyva") == "lost"
    assert outcome("a boat on the sea", "boat") == "extra"
    assert outcome("a red boat", "boat") == "extra"
    assert outcome("a boat", "boat red") == "lost"
    assert outcome("a boat", "boat; sea") == "lost"


def read(name: str) -> list[dict[str, str]]:
    with (OUT.parent / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_are_those_of_the_units():
    figures = json.loads(OUT.read_text())
    for name, rows in grouped(read("hidden.csv"), "run").items():
        assert dict(Counter(row["verdict"] for row in rows)) == {
            verdict: count for verdict, count in figures["hidden"]["runs"][name]["verdicts"].items() if count
        }
    for part, layer in (("classes", "network"), ("units", "layer")):
        for name, rows in grouped(read(f"{part}.csv"), layer).items():
            known = figures[part][name]
            supported = [row["verdict"] == "supported" for row in rows]
            assert (known["units"], known["abstained"]) == (len(rows), sum(r["verdict"] == "abstained" for r in rows))
            assert known["exact"] == proportion([row["exact"] == "1" for row in rows])
            assert sum(supported) == round(
                len(rows) * known["supported_exact" if part == "classes" else "exact_and_supported"][0]
            ) + known.get("supported_wrong", known.get("not_exact_but_supported"))
    for name, rows in grouped(read("shortcuts.csv"), "network").items():
        known = figures["shortcuts"][name]
        claims = [row["context"] for row in rows if row["class"] == SHORTCUT and row["context"]]
        assert sorted(claims) == sorted(each["context"] for each in known["planted"])


def grouped(rows: list[dict[str, str]], column: str) -> dict[str, list[dict[str, str]]]:
    return {name: [row for row in rows if row[column] == name] for name in dict.fromkeys(row[column] for row in rows)}


def test_table_about_sentences_is_that_of_the_scenes():
    known = {"True": True, "False": False, "": None}
    rows = [
        {name: int(value) if name == "size" else known.get(value, value) for name, value in row.items()}
        for row in read("eyes/sentences.csv")
    ]
    assert evaluate.table(rows) in (OUT.parent / "eyes/RESULTS.md").read_text()
