"""Workers that compute exemplars, on a node with one pretended GPU that is free."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

NO_GPU = "''"


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


def contents(root: Path) -> dict[str, str]:
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items())}


def test_worker_that_gets_no_gpu_delays_no_other(folder: Path, found: dict[str, Any]):
    """Two are wanted, and one GPU is free."""
    assert found["free"]["said"] == []
    assert contents(folder / "free") == contents(folder / "reference")


def test_target_info_is_read_without_a_gpu(found: dict[str, Any]):
    assert found["free"]["shown"] == {NO_GPU: 1, "'1'": 1}


def test_exemplars_are_computed_beside_kept_pools_that_hold_all_gpus(folder: Path, found: dict[str, Any]):
    assert found["held"]["layers"] == ["0", "2"]
    assert found["held"]["info_seconds"] < 30
    assert found["held"]["said"] == [
        "pools that are kept up hold the GPUs: exemplars are computed on CPUs (see openmaia pools down)"
    ]
    assert set(found["held"]["shown"]) == {NO_GPU}
    assert contents(folder / "held") == contents(folder / "reference")
