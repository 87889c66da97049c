"""cluster/slurm on a real SLURM of two hosts: slurmctld, slurmd, munge, cgroups, and sweeps that really run."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmaia.runs.run import Run
from tests.cluster import agent_tools
from tests.cluster.conftest import Sweep, Sweeps, environment
from tests.cluster.hosts import lacking, until
from tests.cluster.minislurm import GPUS, PROGRAMS, Slurm, slurm
from tests.conftest import REPOSITORY
from tests.helpers import extending

OPENMAIA = REPOSITORY / "cluster/slurm/openmaia.sbatch"
JOIN = REPOSITORY / "cluster/slurm/join.sbatch"
PATIENCE = 600
"""Seconds for what takes some tens on a quiet machine."""

reason = lacking(PROGRAMS)
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(reason), reason=reason), pytest.mark.timeout(2 * PATIENCE)]


@pytest.fixture(scope="module")
def cluster(root: Path) -> Iterator[Slurm]:
    with slurm(root) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, cluster: Slurm) -> Iterator[Path]:
    """Where a test submits from; what was written there is shown where it fails. Whatever it found, no job and no file
    of a job outlives it."""
    yield tmp_path
    for log in sorted(tmp_path.glob("openmaia-*")):
        print(f"---- {log.name}\n{log.read_text()[-4000:]}")
    for job in cluster.jobs:
        cluster.cancel(job)
    cluster.wait_until_empty(60)


def submit(cluster: Slurm, folder: Path, sweep: Sweep, *options: str, **more: str) -> int:
    wanted = ["--cpus-per-task=1", "--mem=4000", "--time=30", *options]
    return cluster.submit(
        OPENMAIA, *wanted, arguments=sweep.sources, folder=folder, **environment(cluster.root, sweep.meeting) | more
    )


def ended(cluster: Slurm, job: int) -> tuple[str, str]:
    """State and exit code."""
    said = cluster.wait(job, PATIENCE)
    return said["JobState"], said["ExitCode"]


def assert_gone(cluster: Slurm, job: int) -> None:
    """Nothing of the job is left soon after its end. How soon is printed; tests.cluster.overhead measures it."""
    cluster.wait_until_empty(60)
    ended_at = time.mktime(time.strptime(cluster.show(job)["EndTime"], "%Y-%m-%dT%H:%M:%S"))
    took = time.time() - ended_at
    print(f"teardown of job {job}: {took:.1f} s")


def running(cluster: Slurm, job: int) -> bool:
    assert cluster.state(job) in {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}, cluster.show(job)
    return True


@pytest.mark.parametrize("beside", ["nothing", pytest.param("a sweep that fails", marks=pytest.mark.nightly)])
def test_a_sweep_survives_the_end_of_its_time_and_the_loss_of_a_node(
    cluster: Slurm, folder: Path, sweeps: Sweeps, beside: str
):
    """Its tools lie in the folder from which it is submitted. It is requeued before its time is over, then because of the
    node, and does all. The other one has units that fail, on the same two nodes. Each hands on its exit code and leaves
    nothing."""
    shutil.copy(agent_tools.__file__, folder / "own_tools.py")
    good = sweeps.make(f"good-beside-{beside.split()[-1]}", "tools=[own_tools:visit,own_tools:devour]")
    bad = sweeps.make("bad", "units=or=0-2", "retries=0", talk="half") if beside != "nothing" else None
    good.meeting.hold_after(3)
    job = submit(cluster, folder, good, "--nodes=2")
    other = submit(cluster, folder, bad, "--nodes=2") if bad else None
    until(
        lambda: running(cluster, job) and len(set(good.meeting.visits())) == 2 and good.done() == 3,
        PATIENCE,
        "both nodes investigate, and three units are done",
    )
    meeting_point = folder / f".ray-{job}"
    assert (meeting_point.stat().st_mode & 0o777, (meeting_point / "token").stat().st_mode & 0o777) == (0o700, 0o600)
    if bad and other is not None:
        assert ended(cluster, other) == ("FAILED", "1:0")
        assert len(bad.run.failures()) == 3
    first = good.written()
    assert_stopped_and_requeued(cluster, folder, job)
    good.meeting.hold_after(len(good.meeting.visits()) + 3)  # experiments that were held are begun again
    until(lambda: running(cluster, job) and good.done() >= 6, PATIENCE, "more units are done")
    before = good.written()
    assert first.items() <= before.items(), "what was done was not done again"
    lost = next(node for node in cluster.nodes if node != cluster.show(job)["BatchHost"])
    cluster.network.power_off(lost)
    until(lambda: cluster.show(job)["Restarts"] == "2", PATIENCE, "SLURM notices and requeues the job")
    cluster.boot(lost)
    good.meeting.go_on()
    assert ended(cluster, job) == ("COMPLETED", "0:0")
    assert before.items() <= good.written().items(), "what was done was not done again"
    assert (good.done(), len(good.run.pending())) == (12, 0)
    assert set(good.meeting.visits()) == set(cluster.nodes)
    assert_gone(cluster, job)
    assert not list(folder.glob(".ray-*")), "tokens are gone"


def assert_stopped_and_requeued(cluster: Slurm, folder: Path, job: int) -> None:
    """Leaves the job so little time that the signal of openmaia.sbatch, two minutes before the end, is due."""
    hours, minutes, _ = map(int, cluster.show(job)["RunTime"].split(":"))
    cluster.ask("scontrol", "update", f"JobId={job}", f"TimeLimit={60 * hours + minutes + 2}")
    until(lambda: cluster.show(job)["Restarts"] == "1", PATIENCE, "the job is requeued")
    cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=30")
    said = (folder / f"openmaia-{job}.out").read_text()
    assert (
        "stopped; run the same command again to continue" in said
        and "ended with code 3" in said
        and "scancel" not in said
    )


@pytest.mark.nightly
def test_own_components_in_a_job(cluster: Slurm, folder: Path, sweeps: Sweeps):
    """Those of docs/extending.md, whose files lie in the folder from which the job is submitted."""
    extending.write(folder)
    places = [f"paths.{name}={folder / name}" for name in ("runs", "exemplars", "cache")]
    small = ["pictures.kind=folder", f"pictures.folder={sweeps.folder}/pictures", "exemplars.k=2", "evaluate.n=2"]
    tested = ["task.evidence.confirm=0", "evaluate.looks=[]", "evaluate.bootstrap=20", "ray.memory_mb=100"]
    job = cluster.submit(
        OPENMAIA,
        *("--nodes=2", "--cpus-per-task=1", "--mem=4000", "--time=30"),
        arguments=[*extending.together(), *places, *small, *tested],
        folder=folder,
        **environment(cluster.root, sweeps.meeting("own-components")),
    )
    assert ended(cluster, job) == ("COMPLETED", "0:0")
    found = Run.open(str(folder / "runs/mine"))
    assert (len(found.done()), len(found.scores())) == (2, 2)


@pytest.mark.nightly
def test_all_gpus_of_all_nodes_and_an_exit_code_of_the_jobs_own(cluster: Slurm, folder: Path, sweeps: Sweeps):
    """With everything that Ray starts by default. More GPUs are asked for than one node has."""
    more = {"OPENMAIA_JOB": "tests.cluster.job_exits_with_3", "OPENMAIA_HEAD_OPTIONS": "", "OPENMAIA_MIN_NODES": "2"}
    job = submit(cluster, folder, sweeps.make("own"), "--nodes=2", f"--gpus={2 * GPUS}", "--no-requeue", **more)
    assert ended(cluster, job) == ("FAILED", "3:0")
    assert f"{2 * GPUS} GPUs" in (folder / f"openmaia-{job}.out").read_text()
    assert_gone(cluster, job)


@pytest.mark.nightly
def test_a_job_that_ends_while_a_node_is_still_joining_leaves_nothing(cluster: Slurm, folder: Path, sweeps: Sweeps):
    job = submit(
        cluster,
        folder,
        sweeps.make("short"),
        "--nodes=2",
        "--no-requeue",
        OPENMAIA_JOB="tests.cluster.job_exits_with_3",
    )
    assert ended(cluster, job) == ("FAILED", "3:0")
    assert_gone(cluster, job)


@pytest.mark.nightly
def test_a_signal_before_it_has_begun_a_preemption_and_the_end_of_its_ray_requeue_a_job(
    cluster: Slurm, folder: Path, sweeps: Sweeps
):
    """One node each, at once; which of them ends first does not matter."""
    few = "units=and=0-2"
    waiting, preempted, beheaded = (sweeps.make(name, few) for name in ("waiting", "preempted", "beheaded"))
    first, second = cluster.nodes
    one = submit(cluster, folder, waiting, f"--nodelist={first}")
    until(lambda: "wait" in steps(cluster, one), PATIENCE, "it waits for its nodes")
    cluster.ask("scancel", "--batch", "--signal=USR1", str(one))
    for sweep in (preempted, beheaded):
        sweep.meeting.hold_after(0)
    two = submit(cluster, folder, preempted, "--partition=low", f"--nodelist={second}")
    three = submit(cluster, folder, beheaded, f"--nodelist={first}")
    until(lambda: running(cluster, two) and preempted.meeting.visits(), PATIENCE, "it investigates")
    urgent = folder / "urgent.sh"
    urgent.write_text("#!/bin/sh\nsleep 5\n")
    cluster.submit(urgent, "--partition=high", "--exclusive", f"--nodelist={second}", folder=folder)
    until(lambda: running(cluster, three) and beheaded.meeting.visits(), PATIENCE, "it investigates")
    host = cluster.network.hosts[first]
    found = host.processes()
    ray = next((line for line in found if "gcs_server" in line and f"oma-{three}-" in line), "")
    assert ray, found
    host.run("kill", "-KILL", ray.split()[0])
    for job in (one, two, three):
        until(lambda job=job: cluster.show(job)["Restarts"] == "1", 120, "the job is requeued")
    for sweep in (preempted, beheaded):
        sweep.meeting.go_on()
    for job, sweep in ((one, waiting), (two, preempted), (three, beheaded)):
        assert ended(cluster, job) == ("COMPLETED", "0:0")
        assert (sweep.done(), len(sweep.run.pending())) == (3, 0)


def steps(cluster: Slurm, job: int) -> list[str]:
    return cluster.ask("squeue", "--noheader", "--steps", f"--job={job}", "--format=%j").split()


def test_scancel_ends_the_sweep_orderly_and_leaves_nothing(cluster: Slurm, folder: Path, sweeps: Sweeps):
    sweep = sweeps.make("cancelled")
    sweep.meeting.hold_after(0)
    job = submit(cluster, folder, sweep, "--nodes=2")
    until(lambda: running(cluster, job) and len(set(sweep.meeting.visits())) == 2, PATIENCE, "both nodes investigate")
    cluster.cancel(job)
    assert ended(cluster, job)[0] == "CANCELLED"
    assert_gone(cluster, job)
    assert sweep.run.files.read("driver.json") is None, "the lease is given back"
    assert not list(folder.glob(".ray-*")), "the token is gone"
    assert cluster.show(job)["Restarts"] == "0"


@pytest.mark.nightly
def test_with_no_kill_a_sweep_goes_on_with_the_nodes_that_are_left(cluster: Slurm, folder: Path, sweeps: Sweeps):
    sweep = sweeps.make("unkilled")
    sweep.meeting.hold_after(3)
    job = submit(cluster, folder, sweep, "--nodes=2", "--no-kill")
    until(lambda: running(cluster, job) and sweep.done() == 3, PATIENCE, "three units are done")
    lost = next(node for node in cluster.nodes if node != cluster.show(job)["BatchHost"])
    cluster.network.power_off(lost)
    sweep.meeting.go_on()
    try:
        assert ended(cluster, job) == ("COMPLETED", "0:0")
    finally:
        cluster.boot(lost)
    assert (sweep.done(), len(sweep.run.pending())) == (12, 0)
    assert cluster.show(job)["Restarts"] == "0"
    _forget_what_a_dead_host_left(cluster)


def _forget_what_a_dead_host_left(cluster: Slurm) -> None:
    """A host that lost its power could not tidy up; the job of that number will not come back to do it."""
    for path in (cluster.root / "t").iterdir():
        shutil.rmtree(path)


@pytest.mark.nightly
def test_a_node_joins_a_running_sweep_and_leaves_it_again(cluster: Slurm, folder: Path, sweeps: Sweeps):
    sweep = sweeps.make("grown")
    sweep.meeting.hold_after(2)
    job = submit(cluster, folder, sweep, "--nodes=1")
    until(lambda: running(cluster, job) and sweep.done() == 2, PATIENCE, "two units are done")
    head = cluster.show(job)["BatchHost"]
    until(lambda: len(sweep.meeting.visits()) >= 6, PATIENCE, "the head is full")
    assert set(sweep.meeting.visits()) == {head}
    more = cluster.submit(
        JOIN, "--cpus-per-task=1", "--mem=4000", f"--exclude={head}", arguments=[str(job)], folder=folder,
        **environment(cluster.root, sweep.meeting),
    )  # fmt: skip
    until(
        lambda: running(cluster, job) and len(set(sweep.meeting.visits())) == 2, PATIENCE, "the new node investigates"
    )
    cluster.cancel(more)
    cluster.wait(more, 60)
    sweep.meeting.go_on()
    assert ended(cluster, job) == ("COMPLETED", "0:0")
    assert (sweep.done(), len(sweep.run.pending())) == (12, 0)
    assert_gone(cluster, job)


@pytest.mark.nightly
def test_a_sweep_survives_an_investigation_that_takes_all_memory(cluster: Slurm, folder: Path, sweeps: Sweeps):
    if not cluster.cgroups:
        pytest.skip("memory limits need cgroups of version 1")
    sweep = sweeps.make("devoured", "units=and=0-2")
    (sweep.meeting.folder / "appetite").touch()
    job = submit(cluster, folder, sweep, "--mem=2500")
    state, code = ended(cluster, job)
    assert code == "0:0", state
    assert not (sweep.meeting.folder / "appetite").exists()
    assert (sweep.done(), len(sweep.run.pending())) == (3, 0)
    assert_gone(cluster, job)
