"""Benchmarks run, at a scale that proves nothing about speed."""

import json
import subprocess
import sys

import pytest

from measure.benchmarks.__main__ import PARTS
from tests.conftest import REPOSITORY

BY_HAND = ("affinity", "miniature", "sweep", "exemplars")
"""Take minutes even at the smallest scale: `python -m measure.benchmarks only=affinity,miniature,sweep,exemplars smoke=1`."""

AUTOMATIC = [
    p if p == "sandbox_start" else pytest.param(p, marks=pytest.mark.nightly) for p in PARTS if p not in BY_HAND
]
"""The others. No user depends on them, so that CI runs the shortest alone."""


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in numbers(inner)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("part", AUTOMATIC)
def test_a_benchmark_runs_and_prints_its_figures(part: str):
    command = [sys.executable, "-m", "measure.benchmarks", f"only={part}", "smoke=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    found = numbers(json.loads(done.stdout.splitlines()[-1])[part])
    assert found and all(number >= 0 for number in found)
