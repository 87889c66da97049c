"""Units are divided among people evenly."""

from collections import Counter

import pytest

from openmaia.api.assignments import divide
from openmaia.core.errors import UsageError

UNITS = [f"layer={n}" for n in range(7)]


@pytest.mark.parametrize("each", [1, 2, 3])
def test_every_unit_is_given_to_as_many_people(each: int):
    shares = divide(UNITS, ["ada", "grace", "mary"], each, seed=3)
    assert Counter(unit for share in shares.values() for unit in share) == dict.fromkeys(UNITS, each)
    assert all(len(set(share)) == len(share) for share in shares.values())
    numbers = [len(share) for share in shares.values()]
    assert max(numbers) - min(numbers) <= 1


def test_shares_depend_on_the_seed_alone():
    people = ["ada", "grace"]
    assert divide(UNITS, people, 1, 0) == divide(UNITS, people, 1, 0) != divide(UNITS, people, 1, 1)


@pytest.mark.parametrize(("people", "each"), [(["ada"], 2), (["ada"], 0), ([], 1)])
def test_number_of_people_is_checked(people: list[str], each: int):
    with pytest.raises(UsageError, match="expected 1 to"):
        divide(UNITS, people, each, 0)


def test_nobody_is_named_twice():
    with pytest.raises(UsageError, match="ada is named twice"):
        divide(UNITS, ["ada", "ada"], 1, 0)
