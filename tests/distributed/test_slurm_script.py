"""The scripts of cluster/slurm with an `srun` that writes down what it is asked for: containers, and nodes to wait for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openmaia.config.loading import load
from openmaia.distributed.launchers import slurm
from tests.conftest import REPOSITORY

SCRIPTS = REPOSITORY / "cluster/slurm"
SRUN = f"""#!{sys.executable}
import json, sys, time
with open("calls", "a") as stream:
    print(json.dumps(sys.argv[1:]), file=stream)
if sys.argv[-1] == "address":
    print("127.0.0.1:20000")
time.sleep(4 if sys.argv[-1] == "head" else 0)
"""


def calls(folder: Path, script: str, *arguments: str, **variables: str) -> tuple[int, list[list[str]]]:
    """Runs a script; returns its exit code and what it asked srun for."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "squeue": "#!/bin/sh\n", "scancel": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURMD_NODENAME": "a",
        "SLURM_GPUS_ON_NODE": "8", **variables,
    }  # fmt: skip
    done = subprocess.run(["bash", SCRIPTS / script, *arguments], cwd=folder, env=environment, timeout=60)
    found = folder / "calls"
    return done.returncode, [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []


def test_a_job_without_a_container_starts_with_the_nodes_that_are_there(tmp_path: Path):
    code, asked = calls(tmp_path, "openmaia.sbatch", "a.yaml", OPENMAIA_PYTHON="/p/python")
    assert code == 0
    wait = next(call for call in asked if "ray_jobs.wait" in call)
    assert wait[wait.index("--nodes") + 1] == "1"
    assert asked[-1][-5:] == ["-u", "-m", "ray_jobs", "run", "a.yaml"] and "/p/python" in asked[-1]
    assert not any(word.startswith("--container") for call in asked for word in call)


def test_a_job_can_wait_for_all_of_its_nodes(tmp_path: Path):
    _, asked = calls(tmp_path, "openmaia.sbatch", OPENMAIA_MIN_NODES="3")
    wait = next(call for call in asked if "ray_jobs.wait" in call)
    assert wait[wait.index("--nodes") + 1] == "3"


@pytest.mark.slow
def test_every_step_of_a_pyxis_job_runs_in_the_image(tmp_path: Path):
    _, asked = calls(tmp_path, "openmaia.sbatch", OPENMAIA_PYXIS="/s/o.sqsh", OPENMAIA_MOUNTS="/shared /data")
    assert len(asked) == 5
    for call in asked:
        assert "--container-image=/s/o.sqsh" in call and f"--container-workdir={tmp_path}" in call
        assert f"--container-mounts={tmp_path}:{tmp_path},/tmp:/tmp,/shared:/shared,/data:/data" in call


@pytest.mark.slow
@pytest.mark.parametrize("script", ["openmaia.sbatch", "join.sbatch"])
def test_every_step_of_an_apptainer_job_runs_in_the_image(script: str, tmp_path: Path):
    (tmp_path / ".ray-7").mkdir()
    (tmp_path / ".ray-7/address").write_text("127.0.0.1:20000")
    _, asked = calls(tmp_path, script, "7", OPENMAIA_APPTAINER="/s/o.sif")
    assert len(asked) == (5 if script == "openmaia.sbatch" else 1)
    mounts = f"{tmp_path}:{tmp_path},/tmp:/tmp"
    wanted = ["apptainer", "exec", "--nv", "--bind", mounts, "--pwd", str(tmp_path), "/s/o.sif", "python3"]
    for call in asked:
        assert call[call.index("apptainer") :][: len(wanted)] == wanted


def test_two_kinds_of_containers_are_refused(tmp_path: Path):
    code, asked = calls(tmp_path, "openmaia.sbatch", OPENMAIA_PYXIS="a", OPENMAIA_APPTAINER="b")
    assert (code, asked) == (2, [])


def test_a_job_in_a_container_uses_its_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv(slurm.PYTHON, raising=False)
    sources = ["name=x", "units=all", "target.name=t", "target.kind=closed_form", f"paths.runs={tmp_path}"]
    sources += [f"paths.exemplars={tmp_path}"]
    assert slurm.prepare([load(sources)], sources, []).python == sys.executable
    monkeypatch.setenv("OPENMAIA_APPTAINER", "/s/o.sif")
    assert slurm.prepare([load(sources)], sources, []).python == "python3"
