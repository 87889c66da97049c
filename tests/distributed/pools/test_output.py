"""What models write while they are loaded reaches the driver, from the process and from its children."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from openmaia.config.machine import PoolConfig
from openmaia.core.errors import UsageError
from tests.helpers.sleeping import Sleeping, pool

pytestmark = pytest.mark.slow

READ_TWICE = r"""
import json, os
from openmaia.distributed.pools.output import OutputReader

os.write(1, b"before\n")
reader = OutputReader()
os.write(1, b"one\n\n:task_name:load\ntwo\n")
os.write(2, b"a bar: 1 %\ra bar: 50 %\r\n")
first = reader.read()
os.write(2, b"three\n")
print(json.dumps([first, reader.read(), reader.read()]))
"""


def chatty(flag: Path) -> Sleeping:
    """Says what it does, as a library and as an engine in a process of its own would, until the file exists."""
    print("fetching weights", flush=True)
    subprocess.run([sys.executable, "-c", "import sys; print('engine is up', file=sys.stderr)"], check=True)
    while not flag.exists():
        time.sleep(0.05)
    os.write(2, b"weights are there\n")
    return Sleeping()


def failing() -> Sleeping:
    print("no such weights", flush=True)
    raise UsageError("the weights are missing")


def dying(heard: Path) -> Sleeping:
    """The first process writes something, and is gone when that was heard."""
    if not heard.exists():
        print("out of memory soon", flush=True)
        while not heard.exists():
            time.sleep(0.05)
        os._exit(1)
    return Sleeping()


def wait_for(said: list[str], line: str, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while line not in said:
        assert time.monotonic() < until, said
        time.sleep(0.05)


def test_output_is_said_while_the_model_is_loaded(ray_cluster: None, tmp_path: Path):
    said: list[str] = []
    with pool(partial(chatty, tmp_path / "flag"), PoolConfig(), ready=False, say=said.append) as made:
        wait_for(said, "target-0: fetching weights")
        wait_for(said, "target-0: engine is up")
        assert made.statistics().replicas == 0, "it is not loaded yet"
        (tmp_path / "flag").touch()
        made.wait_for(lambda now: now.replicas == 1)
    assert said == ["target-0: fetching weights", "target-0: engine is up", "target-0: weights are there"]


def test_output_of_a_model_that_cannot_be_loaded_is_said(ray_cluster: None):
    said: list[str] = []
    with (
        pytest.raises(UsageError, match="the weights are missing"),
        pool(failing, PoolConfig(), ready=False, say=said.append) as made,
    ):
        made.handle().ask("double", [1])
    assert said[0] == "target-0: no such weights"
    assert "could not be loaded, next try in 30 s: the weights are missing" in said[1]


def test_output_of_a_process_that_dies_while_it_loads_is_said(ray_cluster: None, tmp_path: Path):
    said: list[str] = []
    with pool(partial(dying, tmp_path / "heard"), PoolConfig(), ready=False, say=said.append) as made:
        wait_for(said, "target-0: out of memory soon")
        (tmp_path / "heard").touch()
        made.wait_for(lambda now: now.replicas == 1, seconds=120)
    assert said == ["target-0: out of memory soon"]


def test_reader_returns_new_lines_once(tmp_path: Path):
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        subprocess.run([sys.executable, "-c", READ_TWICE], stdout=out, stderr=err, check=True, timeout=60)
    last = (tmp_path / "out").read_text().splitlines()[-1]
    assert json.loads(last) == [["one", "two", "a bar: 50 %"], ["three"], []]


def test_reader_without_files_reads_nothing():
    done = subprocess.run([sys.executable, "-c", READ_TWICE], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout.splitlines()[-1]) == [[], [], []]
