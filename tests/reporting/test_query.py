"""Searches with conditions, as the search box of the report reads them."""

from pathlib import Path

import pytest

from openmaia.core.errors import UsageError
from openmaia.reporting.query import read_query
from openmaia.reporting.tables import UnitRow, make_rows
from tests.reporting.making import run


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[UnitRow, ...]:
    folder: Path = tmp_path_factory.mktemp("query")
    made = run(folder, answers=3)
    return make_rows(made, made.name)


def select(rows: tuple[UnitRow, ...], text: str) -> list[int]:
    return [row.unit.index for row in read_query(text).select(rows)]


def test_words_and_conditions_are_told_apart():
    read = read_query('red boats "verdict:words" verdict:failed score>0.8 -night -layer:layer3')
    assert read.words == "red boats verdict:words" and read.without == ("night",)
    assert read_query("which see boats verdict:failed?").conditions == (("verdict", ":", "failed", False),)
    assert read.conditions == (
        ("verdict", ":", "failed", False), ("worst", ">", "0.8", False), ("layer", ":", "layer3", True),
    )  # fmt: skip


def test_conditions_select_rows(rows: tuple[UnitRow, ...]):
    assert select(rows, "verdict:failed") == [4] and select(rows, "-verdict:failed") == [0, 1, 2, 3, 5]
    assert select(rows, "index>=2 index<4") == [2, 3] and select(rows, "turns=3") == [0, 1, 2, 3]
    assert select(rows, "layer:layer4 -second") == [3, 4, 5] and select(rows, "layer:layer3") == []
    (name,) = {label for row in rows for label in row.header.get("labels") or () if "second" not in label}
    assert select(rows, f"concept:{name.replace(' ', '_')}") == [0, 1, 2] and select(rows, "run:tiny stop:failed") == [
        4
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("verdct:supported", "There is no field verdct; the nearest is verdict"),
        ("boats scor>0.8", "There is no field scor; the nearest is score"),
        ("Layr:layer4", "There is no field Layr; the nearest is layer"),
        ("verdict>0.5", r"verdict>0\.5: ask for verdict in the form verdict:supported"),
        ("score:high", r"score:high: ask for score in the form score>0\.5"),
        ("score>0.5.5", r"score>0\.5\.5: 0\.5\.5 is no number"),
    ],
)
def test_condition_that_cannot_be_understood_is_named(text: str, said: str):
    with pytest.raises(UsageError, match=said):
        read_query(text)
