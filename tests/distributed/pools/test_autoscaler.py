"""Pools with Ray's autoscaler, whose fake provider starts a node on this machine."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.helpers.autoscaled import PORT, head
from tests.helpers.loading import FLAWLESS


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_autoscaler_brings_the_node_that_a_growing_pool_wants(tmp_path: Path):
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"port {PORT}, which the fake provider needs, is taken")
    (tmp_path / "token").write_text("0123456789abcdef" * 4)
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    with head(tmp_path, environment):
        done = subprocess.run(
            [sys.executable, "-m", "tests.helpers.autoscaled", str(tmp_path), f"127.0.0.1:{PORT}"],
            env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "found.json").read_text()) == {"gpus": [1, 3], "nodes": 2, "counted": FLAWLESS}
