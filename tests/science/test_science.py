"""The measurement of whether descriptions are true runs, at a scale that proves nothing."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.slow
@pytest.mark.usefixtures("settings")
def test_the_sanity_tests_run_and_give_their_figures():
    """The other parts take minutes even at the smallest scale: `python -m tests.science smoke=1`."""
    command = [sys.executable, "-m", "tests.science", "only=sanity", "smoke=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"auc", "auc_worst", "top1"} <= found["sanity"]["results"].keys()
    assert found["made"]["sanity"]["machine"]
