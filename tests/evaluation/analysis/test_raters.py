"""Agreement between raters, against published values."""

import pytest

from openmaia.evaluation.analysis.raters import krippendorff

PUBLISHED = """\
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 ."""
"""The data of Krippendorff (2011), section C: four observers, twelve units, and a nominal alpha of 0.743."""


def test_alpha_is_the_published_one():
    rows = [line.split() for line in PUBLISHED.splitlines()]
    items = [[value for value in unit if value != "."] for unit in zip(*rows, strict=True)]
    assert krippendorff(items) == pytest.approx(0.743, abs=5e-4)


@pytest.mark.parametrize(
    ("items", "expected"),
    [([], None), ([[1], [2]], None), ([[1, 1], [1, 1]], None), ([[1, 1], [2, 2]], 1.0), ([[1, 2], [2, 1]], -0.5)],
)
def test_alpha_of_few_answers(items: list[list[int]], expected: float | None):
    assert krippendorff(items) == (None if expected is None else pytest.approx(expected))
