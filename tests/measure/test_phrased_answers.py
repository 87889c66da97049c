"""The rules by which measure/language_model/asking.py reads the answers of a language model."""

from dataclasses import replace
from pathlib import Path

import pytest

from measure.language_model.asking import misjudged_units, names, untold_words
from openmaia.analysis.search import stem
from openmaia.assembly.asking import CitedUnit
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict
from openmaia.offline.searcher.rules import SceneRules
from openmaia.reporting.tables import make_rows
from tests.reporting.making import run


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> tuple[CitedUnit, CitedUnit]:
    """layer4/0, supported, and layer4/1, undecided."""
    first, second, *_ = make_rows(run(tmp_path_factory.mktemp("phrased"), text="red boat without night"), "tiny")
    sure, open_ = (UnitVerdict(verdict=each, reason="") for each in (Verdict.SUPPORTED, Verdict.UNDECIDED))
    return CitedUnit(row=replace(first, verdict=sure)), CitedUnit(row=replace(second, verdict=open_))


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("[layer4/0] and [layer4/1] are supported.", ["layer4/1"]),
        ("[layer4/0] and [layer4/1] were not supported by their tests.", ["layer4/0"]),
        ("[layer4/0] is unsupported.", ["layer4/0"]),
        ("[layer4/0] (supported), [layer4/1] (undecided).", []),
        ("[layer4/0] responds to boats.", []),
    ],
)
def test_sentence_is_wrong_about_the_test_of_its_units(
    units: tuple[CitedUnit, CitedUnit], sentence: str, wrong: list[str]
):
    cited = [each for each in units if names(sentence, each)]
    assert [each.name for each in misjudged_units(sentence, cited)] == wrong


def test_words_are_told_by_labels_also_where_these_deny_them_and_by_the_question(units: tuple[CitedUnit, CitedUnit]):
    lexicon = {stem(phrase): meant for phrase, meant in SceneRules.lexicon().items()}
    assert untold_words("[layer4/0] responds to red ships at night.", units, "boats", lexicon) == []
    assert untold_words("[layer4/0] responds to ships and dogs.", units, "boats", lexicon) == ["dogs"]
    assert untold_words("[layer4/0] responds to dogs.", units, "dogs", lexicon) == []


def test_name_is_not_found_in_a_longer_one(units: tuple[CitedUnit, CitedUnit], tmp_path: Path):
    assert names("see [layer4/1].", units[1]) and not names("see [layer4/12] and [other/layer4/1].", units[1])
