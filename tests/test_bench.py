"""Benchmarks run, at a scale that proves nothing about speed."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.benchmarks.__main__ import PARTS
from tests.conftest import REPOSITORY


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in numbers(inner)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("part", PARTS)
def test_a_benchmark_runs_and_prints_its_figures(part: str):
    if part == "affinity" and find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    command = [sys.executable, "-m", "tests.benchmarks", f"only={part}", "smoke=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    found = numbers(json.loads(done.stdout.splitlines()[-1])[part])
    assert found and all(number >= 0 for number in found)
