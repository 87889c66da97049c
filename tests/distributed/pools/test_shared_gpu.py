"""Of pools that share a GPU, one whose model measures its memory loads alone; on GPUs of their own they load together."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

Span = tuple[float, float]


def spans(folder: Path, num_gpus: float) -> list[Span]:
    """When each of three pools loaded its model, that of the measuring one first, on pretended GPUs: one if they share it,
    else three."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.sharing", str(folder), str(num_gpus)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{number}.load").read_text()) for number in range(3)]


@pytest.mark.parametrize(("num_gpus", "together"), [(0.3, False), (1.0, True)])
def test_model_that_measures_a_shared_gpu_loads_alone(num_gpus: float, together: bool, tmp_path: Path):
    measuring, *others = spans(tmp_path, num_gpus)
    overlap = any(measuring[0] < ended and began < measuring[1] for began, ended in others)
    assert overlap == together, (measuring, others)
