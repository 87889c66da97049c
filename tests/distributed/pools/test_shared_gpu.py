"""Replicas of several pools that share a GPU load one after the other; on GPUs of their own they load together."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

Span = tuple[float, float]


def spans(folder: Path, num_gpus: float) -> list[Span]:
    """When each of three pools loaded its model, on pretended GPUs: one if they share it, else three."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.sharing", str(folder), str(num_gpus)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(path.read_text()) for path in folder.glob("*.load")]
    assert len(found) == 3
    return sorted((began, ended) for began, ended in found)


@pytest.mark.parametrize(("num_gpus", "together"), [(0.3, False), (1.0, True)])
def test_replicas_that_share_a_gpu_load_one_after_the_other(num_gpus: float, together: bool, tmp_path: Path):
    found = spans(tmp_path, num_gpus)
    overlap = any(later[0] < earlier[1] for earlier, later in pairwise(found))
    assert overlap == together, found
