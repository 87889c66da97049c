"""Replicas get their room all at once, on nodes with pretended GPUs."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("placing")
    done = subprocess.run(
        [sys.executable, "-m", "tests.placing", str(folder)],
        env=os.environ | {"RAY_AUTH_MODE": "token"}, cwd=REPOSITORY, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


def test_what_wants_several_gpus_is_not_kept_out_by_what_wants_one(found: dict[str, Any]):
    assert found["up"] == {"target": 2, "generator": 1, "editor": 1, "backbone": 1}


def test_replicas_are_packed_into_as_few_nodes_as_will_do(found: dict[str, Any]):
    assert found["packed"] == {"nodes": 1, "places": [2, 1, 0]}


def test_investigating_processes_are_no_wider_than_what_the_pools_leave(found: dict[str, Any]):
    assert found["largest"] == [2, 1, 2]


def test_labels_bind_a_place_to_its_nodes(found: dict[str, Any]):
    assert found["small"] == 2


def test_a_place_on_a_lost_node_is_found_elsewhere(found: dict[str, Any]):
    assert found["again"] == found["up"]


def test_no_place_is_held_when_the_pools_have_ended(found: dict[str, Any]):
    assert found["left"] == []
