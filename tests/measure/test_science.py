"""The measurement of whether descriptions are true runs, at a scale that proves nothing."""

import csv
import json
import re
import subprocess
import sys
from collections import Counter
from statistics import mean

import pandas as pd
import pytest

from measure.science import (
    again,
    classes,
    coverage,
    effects,
    faithfulness,
    features,
    real,
    rule,
    sections,
    wordnet,
)
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import CHANCE, proportion
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict
from tests.conftest import REPOSITORY
from tests.helpers.planted_edges import PlantedEdges


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("settings")
def test_the_sanity_tests_run_and_give_their_figures():
    """The other parts take minutes even at the smallest scale: `python -m measure.science smoke=1`."""
    command = [sys.executable, "-m", "measure.science", "only=sanity", "smoke=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"auc", "auc_worst", "top1"} <= found["sanity"]["results"].keys()
    assert found["made"]["sanity"]["machine"]


def test_table_about_a_real_network_agrees_with_its_units():
    """The committed table and the committed rows are of the same measurement, and of wrong descriptions hardly one passes."""
    with real.CSV.open() as file:
        units = list(csv.DictReader(file))
    table = [line for line in sections.read(real.SECTION).splitlines() if line.startswith("| ")]
    shown = {
        cells[0]: cells[1:] for line in table[1:] if (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }
    assert shown.keys() == {unit["method"] for unit in units}
    for method, (tested, auc, _, over_all, _, supported, _, shuffled, words, _) in shown.items():
        own = [unit for unit in units if unit["method"] == method]
        verdicts = Counter(unit["verdict"] for unit in own)
        assert int(tested) == len(own) - verdicts["abstained"] - verdicts["not tested"]
        assert int(supported) == verdicts["supported"]
        known = [float(unit["auc"]) for unit in own if unit["auc"]]
        assert len(known) == int(tested)
        assert float(auc.split()[0]) == pytest.approx(mean(known), abs=0.0006)
        # A baseline has no row of a unit that it says nothing about.
        chance = [CHANCE] * (sum(real.LAYERS.values()) - len(known))
        assert float(over_all.split()[0]) == pytest.approx(mean([*known, *chance]), abs=0.0006)
        assert max(float(share.split("%")[0]) for share in (shuffled, words)) <= 5


def test_table_about_effects_agrees_with_its_units():
    with effects.CSV.open() as file:
        found = [effects.NamedEffect(**{**row, "index": int(row["index"])}) for row in csv.DictReader(file)]
    shown = [line for line in sections.read(effects.SECTION).splitlines() if line.startswith("| ")]
    assert shown[1:] == effects.rows(found)
    edges = PlantedEdges().edges.tolist()
    assert all(each.planted == f"class {edges[each.index]}" for each in found)
    assert [each.kind for each in found] == ["unit"] * len(edges) + ["direction"] * len(edges)
    for by in ("effect", "drives"):
        assert effects.share(found, "unit", by)[0] >= 0.95
        assert effects.share(found, "direction", by)[0] <= 0.05


def test_table_about_features_agrees_with_its_features():
    table = pd.read_csv(features.CSV)
    tables = sections.read("Features of autoencoders").split("| kind | described |")
    shown = [
        line.strip("| ").split(" | ") for line in tables[1].splitlines() if line.startswith(("| TopK", "| JumpReLU"))
    ]
    assert [kind.lower() for kind, *_ in shown] == list(dict.fromkeys(table["kind"]))
    for kind, described, supported, undecided, refuted, auc, *_ in shown:
        own = table[table["kind"] == kind.lower()]
        counts = Counter(own["verdict"])
        assert described == f"{own['description'].notna().sum()} of {len(own)}"
        assert (int(supported), int(undecided), int(refuted)) == tuple(
            counts[each] for each in ("supported", "undecided", "not supported")
        )
        assert float(auc.split()[0]) == pytest.approx(own["auc"].mean(), abs=0.006)


def test_table_about_faithfulness_agrees_with_its_units():
    with faithfulness.CSV.open() as file:
        units = list(csv.DictReader(file))
    shown = {
        cells[0].strip("`"): cells[1:]
        for line in sections.read(faithfulness.SECTION).splitlines()
        if line.startswith("| ") and (cells := [cell.strip() for cell in line.strip("|").split("|")])[0]
    }
    assert shown.keys() == {*real.LAYERS, "all"}
    for layer, (count, own, other, *_) in shown.items():
        rows = [unit for unit in units if layer in ("all", unit["layer"])]
        assert int(count) == len(rows)
        for cell, name in ((own, "auc"), (other, "other")):
            assert float(cell.split()[0]) == pytest.approx(mean(float(unit[name]) for unit in rows), abs=0.0006)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """The aim is 0.92 to 0.98; a simulated share is uncertain by 0.017."""
    rows = [line.split("|")[2] for line in sections.read(coverage.SECTION).splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == len(coverage.SHARED)
    assert all(0.92 - 0.017 <= float(share) <= 0.98 + 0.017 for share in rows)


def test_rule_by_simulation_decides_as_when_it_was_measured():
    """A layer of six units is simulated again. Of its three true descriptions most are supported, of the others none."""
    stored = pd.read_csv(rule.CSV, keep_default_na=False).query("units == 6 and auc == 0.95 and run == 0")
    found = rule.layer(6, 0.95, 0)
    assert found.verdict.tolist() == stored.verdict.tolist()
    assert found.images.tolist() == stored.images.tolist()
    assert rule.share(found[found.true]) > 0.5
    assert rule.share(found[~found.true]) == 0


def test_table_about_the_rule_agrees_with_its_descriptions():
    table = pd.read_csv(rule.CSV, keep_default_na=False)
    shown = [line for line in sections.read(rule.SECTION).splitlines() if line.startswith("| ")][1:]
    assert shown == [rule.row(*key, case) for key, case in table.groupby(["units", "auc"])]


def test_names_of_other_classes_are_counted_by_the_hierarchy():
    """A lion that is called a carnivore is called nothing wrong, and a pair counts as supported once."""
    of = {each.index: each for each in wordnet.read()}
    with classes.CSV.open() as file:
        rows = [row for row in csv.DictReader(file) if row["labels"]]
    near: list[int] = []
    pairs: list[int] = []
    for named in ("1", "0"):
        units = [
            classes.Described(
                of=of[int(row["class"])],
                unit=Unit(target="efficientnet_lite0", layer="output", index=int(row["class"])),
                labels=tuple(row["labels"].split("; ")),
                verdict=UnitVerdict(verdict=Verdict(row["verdict"]), reason=""),
            )
            for row in rows
            if row["named"] == named
        ]
        given = classes.given_names(units)
        passed = {(each.to.unit, each.of.unit) for each in given if each.is_near}
        found = classes.counted(given, passed)
        assert found["supported_near"] == found["near"]
        assert found["supported_wrong"][0] == 0
        assert found["supported"] == proportion([each.is_near for each in given])
        near.append(found["near"])
        pairs.append(found["pairs"])
    text = sections.read(classes.SECTION)
    assert all(f"{one} of the {all_} pairs" in text for one, all_ in zip(near, pairs, strict=True))


def test_table_about_repeated_verdicts_by_simulation_agrees_with_its_descriptions():
    table = pd.read_csv(again.CSV)
    lines = [line for line in sections.read(again.SECTION).splitlines() if line.startswith("| ")]
    default = table[table.design == again.DESIGNS[0].name]
    assert lines[1 : 1 + len(again.DESIGNS)] == again.rows(table)
    assert lines[-len(again.by_truth(default)) :] == again.by_truth(default)


def test_undecided_descriptions_get_all_images_where_a_design_returns_to_them():
    (design,) = [each for each in again.DESIGNS if each.returns]
    found = again.twice(design, 0, each=2)
    for images, verdict in (("images", "verdict"), ("images_2", "verdict_2")):
        assert (found[found[verdict] == Verdict.UNDECIDED][images] == design.looks[-1]).all()
    assert found.images.lt(design.looks[-1]).any()
