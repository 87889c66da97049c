"""A Ray of one's own is not to be reached from the network, and leaves the process as it found it."""

import json
import os
import subprocess
import sys

from tests.conftest import REPOSITORY

DRIVER = """
import json, os
import psutil
from openmaia.config import load
from openmaia.remote.cluster import cluster
import ray

before = dict(os.environ)
with cluster(load(["configs/closed-form.yaml", "name=own"])):
    ray.get(ray.remote(lambda: None).remote(), timeout=60)
    family = psutil.Process().children(recursive=True)
    heard = {(one.name(), each.laddr.ip) for one in family for each in one.net_connections("tcp") if each.status == "LISTEN"}
changed = {name for name in before.keys() | os.environ.keys() if before.get(name) != os.environ.get(name)}
print(json.dumps({"heard": sorted(heard), "changed": sorted(changed)}))
"""


def test_it_listens_to_this_machine_alone_and_leaves_no_variable_behind():
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], env=os.environ | {"RAY_AUTH_MODE": "token"}, cwd=REPOSITORY,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "raylet" in {name for name, _ in found["heard"]}
    assert {address for _, address in found["heard"]} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in found["changed"], "a later `ray start` would refuse a second node"
