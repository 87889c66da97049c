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

from measure.science import coverage, effects, faithfulness, features, ground_truth, real, rule, sections, truth
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import CHANCE
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


@pytest.mark.nightly
@pytest.mark.slow
def test_table_about_units_of_known_truth_agrees_with_its_units():
    found: dict[str, dict[Unit, truth.TruthMatch]] = {}
    with ground_truth.CSV.open() as file:
        for row in csv.DictReader(file):
            unit = Unit(target="closed_form", layer=row["mode"], index=int(row["unit"]))
            match = truth.TruthMatch(
                labels=len(set(filter(None, row["labels"].split("; ")))),
                slots=len(row["truth"].split(" or ")),
                hits=int(row["hits"]),
                inside=row["inside"] == "1",
            )
            assert match.exact == (row["exact"] == "1")
            found.setdefault(row["method"], {})[unit] = match
    assert len(found[ground_truth.OWN]) >= 300
    shown = ground_truth.rows(
        {name: ground_truth.summarised(ground_truth.FAMILY, units) for name, units in found.items()}
    )
    lines = sections.read(ground_truth.SECTION).splitlines()
    assert [line for line in lines if line.startswith("| ")][1:] == shown


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
