"""A command whose node Ray has declared dead ends, even if it waits in a call that never returns."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from openmaia.distributed.cluster.nodes import ENDED
from tests.conftest import REPOSITORY

COMMAND = """
import threading
from openmaia import distributed
from openmaia.cli import lost_node
distributed.prepare("local")
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
lost_node.end_without_ray(every=0.5, after=2.0)
print("connected", flush=True)
threading.Event().wait()
"""


@pytest.mark.slow
def test_command_that_never_returns_ends_without_its_node():
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        cwd=REPOSITORY, env=os.environ | {"RAY_AUTH_MODE": "token"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert command.stdout and command.stdout.readline() == "connected\n"
        time.sleep(5)
        assert command.poll() is None
        (raylet,) = (each for each in psutil.Process(command.pid).children(recursive=True) if each.name() == "raylet")
        raylet.kill()
        _, said = command.communicate(timeout=120)
        assert command.returncode == 1 and f"error: {ENDED}" in said
    finally:
        command.kill()
