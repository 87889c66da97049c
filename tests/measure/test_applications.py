"""The measurement of the applications, at a scale at which it only shows that it runs."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("settings")
def test_bias_measurement_runs():
    command = [sys.executable, "-m", "measure.applications", "only=bias", "smoke=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(done.stdout.splitlines()[-1])["bias"]
    assert (figures["planted"], figures["nulls"]) == (1, 1)
    assert figures["supported"] >= 1
    assert figures["false_discoveries"][0] == 0
