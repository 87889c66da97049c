"""What SLURM and two nodes cost: the same twenty investigations on a local Ray and as a job, in turn. By hand, as root:

python -m tests.cluster.overhead [TIMES]        prints rows for cluster/RESULTS.md
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.conftest import Sweep, Sweeps, environment
from tests.cluster.hosts import lacking, until
from tests.cluster.minislurm import PROGRAMS, Slurm, slurm
from tests.conftest import REPOSITORY

TWENTY = ("units=mono=0-4:or=0-2:and=0,1", "replicates=2", "ray.investigations=4")


@dataclass(frozen=True, slots=True)
class Job:
    """Seconds: from sbatch to the job's end; of these, until the driver began; from the end until nothing of it is left."""

    all: float
    before: float
    teardown: float


def main(times: int) -> None:
    if reason := lacking(PROGRAMS):
        sys.exit(reason)
    root = Path(f"/tmp/oma{os.getpid()}")
    (root / "tmp").mkdir(parents=True, mode=0o755)
    local: list[float] = []
    jobs: list[Job] = []
    try:
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder, slurm(root) as cluster:
            sweeps = Sweeps(Path(folder))
            for turn in range(times):
                local.append(_local(root, sweeps.make(f"local{turn}", *TWENTY, "ray.num_cpus=2")))
                jobs.append(_job(cluster, Path(folder), sweeps.make(f"job{turn}", *TWENTY)))
                loads = " ".join(f"{load:.0f}" for load in os.getloadavg())
                print(f"{turn + 1}: local {local[-1]:.1f} s, {jobs[-1]}, load {loads}", flush=True)
    finally:
        shutil.rmtree(root)
    more = [job.all - alone for job, alone in zip(jobs, local, strict=True)]
    rows = {
        "local Ray": local,
        "SLURM, two nodes": [job.all for job in jobs],
        "… until the driver begins": [job.before for job in jobs],
        "more than a local Ray": more,
        "from the job's end until nothing is left": [job.teardown for job in jobs],
    }
    for name, seconds in rows.items():
        print(f"| {name} | {statistics.median(seconds):.1f} | {min(seconds):.1f} to {max(seconds):.1f} |")


def _local(root: Path, sweep: Sweep) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "openmaia.cli.main", "run", *sweep.sources]
    # Ray keeps its logs: not among what a job may leave.
    (root / "alone").mkdir(exist_ok=True)
    variables = os.environ | environment(root, sweep.meeting) | {"TMPDIR": str(root / "alone")}
    subprocess.run(command, env=variables, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, timeout=1200)
    assert sweep.done() == 20
    return time.monotonic() - began


def _job(cluster: Slurm, folder: Path, sweep: Sweep) -> Job:
    """With all that Ray starts by default."""
    began = time.time()
    script = REPOSITORY / "cluster/slurm/openmaia.sbatch"
    options = ("--nodes=2", "--cpus-per-task=1", "--mem=5000", "--time=30")
    variables = environment(cluster.root, sweep.meeting) | {"OPENMAIA_HEAD_OPTIONS": ""}
    job = cluster.submit(script, *options, arguments=sweep.sources, folder=folder, **variables)
    log = folder / f"openmaia-{job}.out"
    until(lambda: log.exists() and "loading the models" in log.read_text(), 600, "the driver begins")
    before = time.time() - began
    said = cluster.wait(job, 1200)
    cluster.wait_until_empty(120)
    gone = time.time()
    assert (said["JobState"], sweep.done()) == ("COMPLETED", 20), log.read_text()
    ended = time.mktime(time.strptime(said["EndTime"], "%Y-%m-%dT%H:%M:%S"))
    return Job(ended - began, before, gone - ended)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
