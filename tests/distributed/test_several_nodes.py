"""One replica of a language model on two nodes: vLLM's Ray executor in a placement group of ours."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("vllm")

from tests.helpers.vllm_platform import install

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("nodes")
    install(folder / "plugin")
    path = os.pathsep.join([str(folder / "plugin"), str(REPOSITORY)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.several_nodes", str(folder)],
        env=os.environ | {"RAY_AUTH_MODE": "token", "PYTHONPATH": path}, cwd=REPOSITORY, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


def test_stages_are_on_both_nodes_and_answer_as_one_process_does(found: dict[str, Any]):
    assert found["nodes"] == [2]
    assert found["workers"] == 2
    assert len(set(found["one"])) == 3
    assert found["several"] == found["one"]


def test_replica_comes_back_after_a_death_of_a_stage_and_of_its_own(found: dict[str, Any]):
    assert found["without a worker"] == found["without the replica"] == found["one"]
    assert found["deaths"] == 2


def test_replica_waits_for_another_node_when_one_is_lost(found: dict[str, Any]):
    assert not found["answered too early"]
    assert found["on another node"] == found["one"]


def test_no_gpu_is_held_when_the_pools_have_ended(found: dict[str, Any]):
    assert found["left"] == 0
