"""A Ray of one's own is not to be reached from the network."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

DRIVER = """
import json, os
import psutil
from openmaia import distributed
from openmaia.config.loading import load
distributed.prepare("local")
from openmaia.distributed.cluster.connection import cluster
import ray

with cluster(load(["configs/closed-form.yaml", "name=own"])):
    ray.get(ray.remote(lambda: None).remote(), timeout=60)
    family = psutil.Process().children(recursive=True)
    heard = {(one.name(), each.laddr.ip) for one in family for each in one.net_connections("tcp") if each.status == "LISTEN"}
print(json.dumps({"heard": sorted(heard)}))
"""


@pytest.mark.slow
def test_own_cluster_listens_on_loopback_only():
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], env=os.environ | {"RAY_AUTH_MODE": "token"}, cwd=REPOSITORY,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "raylet" in {name for name, _ in found["heard"]}
    assert {address for _, address in found["heard"]} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
