"""Every benchmark runs, at a scale that proves nothing about speed."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.parametrize(("module", "arguments"), [("exemplars", ["--pictures", "20"])])
def test_a_benchmark_runs_and_prints_its_figures(module: str, arguments: list[str]):
    command = [sys.executable, "-m", f"tests.bench.{module}", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.JSONDecoder().raw_decode(done.stdout)[0]
    assert all(value > 0 for value in found.values() if isinstance(value, float))
