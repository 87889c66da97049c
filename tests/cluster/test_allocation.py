"""What Ray is told of an allocation, and the parts of the launchers that need no cluster."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from ray_jobs.allocation import FIRST, PORTS, find_free_block, find_own_address, read_share
from ray_jobs.node import find_descendants
from tests.conftest import REPOSITORY

GIB = 2**30
OPENMAIA = REPOSITORY / "cluster/slurm/openmaia.sbatch"
JOB = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8"}


def test_ray_gets_the_jobs_cpus_gpus_and_memory():
    given = read_share({**JOB, "SLURM_GPUS_ON_NODE": "2", "SLURM_MEM_PER_NODE": "10240"}, shm_bytes=100 * GIB)
    assert (given.cpus, given.gpus, given.store) == (8, 2, 3 * GIB)
    assert given.memory == 10 * GIB - 3 * GIB - GIB // 2
    assert "--num-gpus=2" in given.options() and f"--object-store-memory={3 * GIB}" in given.options()


def test_memory_per_cpu_counts_for_every_cpu():
    per_cpu = read_share({**JOB, "SLURM_MEM_PER_CPU": "1280"}, shm_bytes=100 * GIB)
    assert per_cpu == read_share({**JOB, "SLURM_MEM_PER_NODE": "10240"}, shm_bytes=100 * GIB)


def test_memory_per_gpu_counts_for_every_gpu():
    gpus = {"SLURM_GPUS_ON_NODE": "2"}
    per_gpu = read_share({**JOB, **gpus, "SLURM_MEM_PER_GPU": "5120"}, shm_bytes=100 * GIB)
    assert per_gpu == read_share({**JOB, **gpus, "SLURM_MEM_PER_NODE": "10240"}, shm_bytes=100 * GIB)


def test_objects_get_no_more_than_shared_memory_holds():
    given = read_share({**JOB, "SLURM_MEM_PER_NODE": "10240"}, shm_bytes=GIB)
    assert given.store is not None and given.store < GIB


@pytest.mark.parametrize("memory", [{}, {"SLURM_MEM_PER_NODE": "0"}])
def test_a_job_without_a_memory_limit_leaves_memory_to_ray(memory: dict[str, str]):
    given = read_share(JOB | memory, shm_bytes=GIB)
    assert (given.memory, given.store) == (None, None)


@pytest.mark.parametrize("more", [{}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}])
def test_a_job_without_gpus_gets_none(more: dict[str, str]):
    assert read_share(JOB | more, shm_bytes=GIB).gpus == 0


def test_outside_of_a_job_everything_is_left_to_ray():
    assert read_share({}, shm_bytes=GIB).options() == []


def test_a_block_of_ports_in_which_one_is_taken_is_passed_over():
    base = find_free_block(500)
    with socket.socket() as taken:
        taken.bind(("", base + PORTS - 1))
        assert find_free_block(500) >= base + PORTS


def test_jobs_of_different_numbers_get_different_ports():
    assert len({find_free_block(number) for number in range(100, 120)}) > 10, "all but what others took meanwhile"
    assert FIRST <= find_free_block(10**8) < 30_000


def test_the_address_towards_a_peer_is_that_of_the_network_between():
    assert find_own_address("127.0.0.1") == "127.0.0.1"


def test_descendants_are_children_and_theirs():
    process = subprocess.Popen(["bash", "-c", "sleep 60 & wait"])
    try:
        until = time.monotonic() + 10
        while len(find_descendants(process.pid)) != 1:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert {process.pid} | find_descendants(process.pid) <= find_descendants(os.getpid())
    finally:
        for pid in (*find_descendants(process.pid), process.pid):
            os.kill(pid, 9)
        process.wait()


FLEEING = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 20
while time.monotonic() < end and (not os.fork() or os._exit(0)):
    open(os.environ["TRACE"], "w").write(str(os.getpid()))
    time.sleep(0.02)
"""

ENDING = """
import os, subprocess, sys, time
from ray_jobs.node import adopt_orphans, end_descendants
adopt_orphans()
for _ in range(4):
    subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while not os.path.exists(os.environ["TRACE"]):
    time.sleep(0.01)
end_descendants()
os.unlink(os.environ["TRACE"])
"""


def test_no_process_escapes_that_is_born_while_the_others_are_ended(tmp_path: Path):
    """Four that ignore a SIGTERM and hand over to a child of their own fifty times a second."""
    trace = tmp_path / "trace"
    command = [sys.executable, "-c", ENDING, FLEEING]
    environment = os.environ | {"TRACE": str(trace)}
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    time.sleep(0.1)
    assert not trace.exists(), "one still writes where it is"


def test_waiting_for_nodes_ends_with_what_to_look_at():
    command = [sys.executable, "-m", "ray_jobs.wait", "--nodes=2", "--timeout=0.1"]
    environment = os.environ | {"RAY_ADDRESS": "127.0.0.1:9", "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "0 of 2 Ray nodes at 127.0.0.1:9" in done.stderr and "OPENMAIA_HEAD_ADDRESS" in done.stderr


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is missing: .ci/run installs it with apt-get")
def test_the_scripts_pass_shellcheck():
    scripts = sorted((REPOSITORY / "cluster/slurm").glob("*.sbatch"))
    assert len(scripts) == 2
    done = subprocess.run(["shellcheck", *map(str, scripts)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["openmaia.sbatch", "join.sbatch"])
def test_no_launcher_uses_a_command_that_ends_other_peoples_ray(name: str):
    text = (REPOSITORY / "cluster/slurm" / name).read_text()
    assert not [word for word in ("ray stop", "symmetric-run", "pkill", "killall") if word in text]


LAUNCHERS = [
    path
    for path in sorted((REPOSITORY / "cluster").rglob("*"))
    if path.suffix in (".sbatch", ".yaml", ".md") or path.name == "Dockerfile"
]


def named(path: Path) -> tuple[set[str], set[str]]:
    """Modules and files that a launcher, or the text about launchers, names."""
    text = path.read_text()
    modules = set(re.findall(r"(?<![\w./])(ray_jobs\.\w+)", text)) | set(re.findall(r" -m (openmaia[\w.]*)", text))
    return modules, set(re.findall(r"\b(?:configs|cluster)/[\w/.-]+\.(?:yaml|sbatch|md)", text))


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: str(path.relative_to(REPOSITORY / "cluster")))
def test_modules_and_files_that_a_launcher_names_exist(path: Path):
    modules, files = named(path)
    assert [module for module in modules if find_spec(module) is None] == []
    assert [file for file in files if not (REPOSITORY / file).is_file()] == []


def test_the_launchers_name_what_they_start():
    """Else the test above looks for nothing."""
    modules, files = named(OPENMAIA)
    assert {"ray_jobs.node", "ray_jobs.wait"} <= modules
    assert "configs/machine/many-nodes.yaml" in files
