"""The measurement of whether descriptions are true runs, at a scale that proves nothing."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.science.__main__ import PARTS


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_and_gives_its_figures(part: str, settings: list[str]):
    command = [sys.executable, "-m", "tests.science", f"only={part}", "smoke=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = {
        "ground_truth": {"mono", "or", "and", "shuffled", "exhaustive"},
        "real": {"units", "positive_share", "auc", "auc_other", "difference", "identification", "baselines"},
        "sanity": {"auc", "auc_worst", "top1"},
    }
    assert expected[part] <= found[part].keys()
    assert found["made"][part]["machine"]
