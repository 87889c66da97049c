"""Workers that compute exemplars, on a node with one pretended GPU that is free."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.helpers.stored import assert_alike, store

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

NO_GPU = "''"
LAYERS = ["0", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one-gpu")
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.one_gpu", str(folder)],
        env=os.environ | {"RAY_AUTH_MODE": "token"}, cwd=REPOSITORY, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "found.json").read_text())


def test_worker_that_gets_no_gpu_delays_no_other(folder: Path, found: dict[str, Any]):
    """Two are wanted, and one GPU is free."""
    assert not any("pools" in line for line in found["free"]["said"])
    assert_alike(store(folder / "free"), store(folder / "reference"), LAYERS)


def test_target_info_is_read_without_a_gpu(found: dict[str, Any]):
    assert found["free"]["shown"] == {NO_GPU: 1, "'1'": 1}


@pytest.mark.parametrize("case", ["not requested", "replica without"])
def test_process_that_requests_no_gpu_is_shown_none(found: dict[str, Any], case: str):
    assert set(found[case]["shown"]) == {NO_GPU}


def test_exemplars_are_computed_beside_kept_pools_that_hold_all_gpus(folder: Path, found: dict[str, Any]):
    assert found["held"]["layers"] == LAYERS
    assert found["held"]["info_seconds"] < 30
    assert (
        "pools that are kept up hold the GPUs: exemplars are computed on CPUs (see openmaia pools down)"
        in found["held"]["said"]
    )
    assert set(found["held"]["shown"]) == {NO_GPU}
    assert_alike(store(folder / "held"), store(folder / "reference"), LAYERS)
