"""What SLURM and two nodes cost: the same twenty investigations on a local Ray and as a job. By hand, as root:

python -m tests.cluster.overhead        prints a row for cluster/slurm/RESULTS.md
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.conftest import Sweep, Sweeps, environment
from tests.cluster.hosts import lacking, until
from tests.cluster.minislurm import PROGRAMS, Slurm, slurm
from tests.conftest import REPOSITORY

TWENTY = ("units=mono=0-4:or=0-2:and=0,1", "replicates=2", "ray.investigations=4")


def main() -> None:
    if reason := lacking(PROGRAMS):
        sys.exit(reason)
    root = Path(f"/tmp/oma{os.getpid()}")
    root.mkdir(mode=0o755)
    try:
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder, slurm(root) as cluster:
            sweeps = Sweeps(Path(folder))
            alone = _local(root, sweeps.make("local", *TWENTY, "ray.num_cpus=2"))
            job, teardown = _job(cluster, Path(folder), sweeps.make("job", *TWENTY))
    finally:
        shutil.rmtree(root)
    load = os.getloadavg()[1]
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, load {load:.0f}"
    print("| date | machine | local Ray, s | SLURM, two nodes, s | more, s | teardown, s |")
    print(
        f"| {time.strftime('%Y-%m-%d')} | {machine} | {alone:.0f} | {job:.0f} | {job - alone:+.0f} | {teardown:.1f} |"
    )


def _local(root: Path, sweep: Sweep) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "openmaia.cli", "run", *sweep.sources]
    variables = os.environ | environment(root, sweep.meeting)
    subprocess.run(command, env=variables, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, timeout=1200)
    assert sweep.done() == 20
    return time.monotonic() - began


def _job(cluster: Slurm, folder: Path, sweep: Sweep) -> tuple[float, float]:
    """Seconds from sbatch to the job's end, and from there until nothing of it is left. With all that Ray starts."""
    began = time.time()
    script = REPOSITORY / "cluster/slurm/openmaia.sbatch"
    options = ("--nodes=2", "--cpus-per-task=1", "--mem=5000", "--time=30")
    variables = environment(cluster.root, sweep.meeting) | {"OPENMAIA_HEAD_OPTIONS": ""}
    job = cluster.submit(script, *options, arguments=sweep.sources, folder=folder, **variables)
    said = cluster.wait(job, 1200)
    until(lambda: not cluster.leftovers(), 120, "nothing is left")
    gone = time.time()
    assert (said["JobState"], sweep.done()) == ("COMPLETED", 20), (folder / f"openmaia-{job}.out").read_text()
    ended = time.mktime(time.strptime(said["EndTime"], "%Y-%m-%dT%H:%M:%S"))
    return ended - began, gone - ended


if __name__ == "__main__":
    main()
