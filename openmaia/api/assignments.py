"""Which units each person investigates: the file `assignments.json` in the run of people."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.text import printable
from openmaia.runs.records import HUMAN
from openmaia.runs.run import Run

_FILE = "assignments.json"


def divide(units: Sequence[str], people: Sequence[str], each: int, seed: int) -> dict[str, list[str]]:
    """Gives each unit to `each` people, so that the numbers of their units differ by at most one.

    Raises UsageError if `each` is not from 1 to the number of people, or a name occurs twice.
    """
    if twice := [name for name, count in Counter(people).items() if count > 1]:
        raise UsageError(f"{twice[0]} is named twice; give every person a name of their own")
    if not 1 <= each <= len(people):
        raise UsageError(f"each={each} people for a unit; expected 1 to {len(people)}, the number of people")
    draw = random.Random(seed)
    mixed, names = draw.sample(units, len(units)), draw.sample(people, len(people))
    shares: dict[str, list[str]] = {name: [] for name in people}
    for turn, unit in enumerate(unit for unit in mixed for _ in range(each)):
        shares[names[turn % len(names)]].append(unit)
    return {name: draw.sample(share, len(share)) for name, share in shares.items()}


def write_assignments(run: Run, shares: dict[str, list[str]]) -> None:
    """Stores the units of each person, in place of earlier ones. The run need not exist: the first session creates it."""
    run.files.create()
    run.files.write(_FILE, json.dumps(shares, ensure_ascii=False, indent=1).encode())


def next_unit(run: Run, person: str) -> str:
    """Returns the first unit of a person that has no record by them, such as `layer4=122`.

    Raises UsageError if there is none, and StoreError if the file is damaged.
    """
    data = run.files.read(_FILE)
    if data is None:
        raise UsageError(f"{run.files.root} has no assignments; name the unit, or call openmaia.assign first")
    shares = _parsed(data, run)
    if person not in shares:
        raise UsageError(f"{person} has no units; openmaia.assign gave some to {', '.join(map(printable, shares))}")
    done = {
        f"{each.unit.layer}={each.unit.index}"
        for each in run.done()
        if (summary := run.summary(each)) is not None and summary["backbone"] == f"{HUMAN}: {person}"
    }
    left = [unit for unit in shares[person] if unit not in done]
    if not left:
        raise UsageError(f"{person} has investigated all {len(shares[person])} units")
    return left[0]


def _parsed(data: bytes, run: Run) -> dict[str, list[str]]:
    try:
        shares: Any = parse_json(data)
        if all(isinstance(unit, str) for share in shares.values() for unit in share):
            return shares
    except (ValueError, AttributeError, TypeError):
        pass
    raise StoreError(f"{run.files.path(_FILE)} is damaged; call openmaia.assign again")
