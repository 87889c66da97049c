"""What is done to a running sweep: a signal to one of its processes, a second command, a disk or a memory that fills, a
clock that jumps, a host that is cut off or switched off."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from measure.faults import sweep
from openmaia.runs.lease import LEASE_SECONDS
from tests.cluster import ray_hosts as hosts
from tests.cluster.hosts import until
from tests.cluster.ray_hosts import RayHosts, ray_hosts
from tests.conftest import REPOSITORY
from tests.helpers.object_store import object_store

Victims = Callable[[psutil.Process], list[psutil.Process]]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a trial runs."""

    runs: str
    """The folder of the runs."""
    environment: dict[str, str]
    overrides: Sequence[str] = sweep.ON_THIS_MACHINE
    cluster: RayHosts | None = None
    """Hosts on which the sweep runs; its command on h1."""

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Gives the command of the sweep."""
        host = self.cluster.network.hosts["h1"] if self.cluster else None
        overrides = (f"paths.runs={self.runs}", *self.overrides)
        return sweep.start(folder, *overrides, environment=self.environment, host=host)


@dataclass(frozen=True, kw_only=True)
class Disturbed:
    """A sweep that runs, as a disturbance finds it."""

    driver: subprocess.Popen[bytes]
    folder: Path
    place: Place
    chance: random.Random


@contextmanager
def _beside(folder: Path) -> Iterator[Place]:
    yield Place(runs=str(folder / "runs"), environment={})


@contextmanager
def _on_object_store(folder: Path) -> Iterator[Place]:
    with object_store(folder) as store:
        old = {name: os.environ.get(name) for name in store.environment}
        os.environ.update(store.environment)  # this process reads the records
        try:
            yield Place(runs=store.url, environment=store.environment)
        finally:
            for name, value in old.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _on_small_disk(folder: Path) -> Iterator[Place]:
    """A file system of 128 MiB, which needs root. A command is refused where less than half of that is left."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(disk)], check=True)
    try:
        yield Place(runs=str(disk / "runs"), environment={})
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


LEFT = 6 * 2**30
"""Memory in bytes that such a sweep and others may use before Ray kills processes of it."""
THRESHOLD = "RAY_memory_usage_threshold"
"""Name of the variable with the share of the machine's memory from which on Ray kills."""


@contextmanager
def _with_little_memory(folder: Path) -> Iterator[Place]:
    used = psutil.virtual_memory()
    threshold = (used.total - used.available + LEFT) / used.total
    yield Place(runs=str(folder / "runs"), environment={THRESHOLD: f"{threshold:.3f}"})


JUMPING = """import time
_true = time.time
def _jumped():
    with open({clock!r}) as file:
        return _true() + float(file.read())
time.time = _jumped
"""
"""Imported by every Python process of the sweep: `time.time` is off by the seconds in a file. The machine's clock stays."""


@contextmanager
def _with_a_clock(folder: Path) -> Iterator[Place]:
    (folder / "clock").write_text("0")
    (folder / "python").mkdir()
    (folder / "python/sitecustomize.py").write_text(JUMPING.format(clock=str(folder / "clock")))
    path = os.pathsep.join(filter(None, (str(folder / "python"), os.environ.get("PYTHONPATH"))))
    yield Place(runs=str(folder / "runs"), environment={"PYTHONPATH": path})


@contextmanager
def on_hosts(folder: Path) -> Iterator[Place]:
    """Three hosts on one switch, which need root."""
    root = folder / "hosts"
    root.mkdir()
    variables = {sweep.LOG: str(folder / "turns.log"), "PYTHONPATH": str(REPOSITORY)}
    with ray_hosts(root, variables) as cluster:
        yield Place(
            runs=str(folder / "runs"),
            environment=cluster.environment,
            overrides=sweep.on_cluster(cluster.address),
            cluster=cluster,
        )


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """A kind of disturbance of a sweep."""

    act: Callable[[Disturbed], bool]
    """Returns whether there was anything to disturb."""
    times: int = 5
    """How often it comes in one sweep."""
    is_observed: bool = False
    """Whether the agent is told that its experiment died, as if its code had ended the process, so that the record of one
    unit may differ."""
    place: Callable[[Path], contextlib.AbstractContextManager[Place]] = _beside
    """Makes the place where the run lies."""
    is_alone: bool = False
    """Whether it would disturb another sweep, too, so that none may run beside it."""


# -- processes ---------------------------------------------------------------------------------------------------------


def _named(beginning: str | tuple[str, ...], driver: psutil.Process) -> list[psutil.Process]:
    return [process for process in _below(driver) if process.name().startswith(beginning)]


def _below(process: psutil.Process, *, recursive: bool = True) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=recursive)
    return []


def _templates(driver: psutil.Process) -> list[psutil.Process]:
    return [child for worker in WORKERS(driver) for child in _below(worker, recursive=False) if _is_template(child)]


def _is_template(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return "sandbox.supervisor" in " ".join(process.cmdline())
    return False


def _sandboxes(driver: psutil.Process) -> list[psutil.Process]:
    supervisors = [child for template in _templates(driver) for child in _below(template, recursive=False)]
    return [child for supervisor in supervisors for child in _below(supervisor, recursive=False)]


WORKERS: Victims = partial(_named, ("ray::UnitWorker", f"ray::{sweep.LAYER}/"))
"""A process that runs a single investigation, which was interrupted before, has the name of that call."""

VICTIMS: dict[str, Victims] = {
    "driver": lambda driver: [driver],
    "dispatcher": partial(_named, "ray::Dispatcher"),
    "replica": partial(_named, "ray::Replica"),
    "worker": WORKERS,
    "sandbox": _sandboxes,
    "template": _templates,
    "raylet": partial(_named, "raylet"),
    "gcs": partial(_named, "gcs_server"),
    "wandb": partial(_named, "wandb-core"),
}


def _one_of(victims: Victims, disturbed: Disturbed) -> psutil.Process | None:
    if disturbed.driver.poll() is not None:
        return None
    try:
        found = victims(psutil.Process(disturbed.driver.pid))
    except psutil.NoSuchProcess:
        return None
    return disturbed.chance.choice(found) if found else None


def _kill(victims: Victims, disturbed: Disturbed) -> bool:
    victim = _one_of(victims, disturbed)
    if victim is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.kill()
        if victim.pid == disturbed.driver.pid:
            disturbed.driver.wait(30)  # or the next disturbance would find it
        return True
    return False


def _stop(victims: Victims, seconds: float, disturbed: Disturbed) -> bool:
    """Stops a process for some seconds. What was cut off comes back then, if nothing has ended it."""
    victim = _one_of(victims, disturbed)
    if victim is None:
        return False
    try:
        victim.suspend()
    except psutil.NoSuchProcess:
        return False
    time.sleep(seconds)
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.resume()
    return True


# -- the rest ----------------------------------------------------------------------------------------------------------


def _second(disturbed: Disturbed, timeout: float) -> tuple[int, bool]:
    """Gives the same command a second time. Wakes the first one up when it drives the run.

    Returns:
        Its exit code, and whether it drove the run.
    """
    second = disturbed.place.start(disturbed.folder)
    try:
        while not (drove := sweep.driver(disturbed.folder) == second.pid) and second.poll() is None:
            time.sleep(0.1)
        if second.poll() is None:
            time.sleep(disturbed.chance.uniform(0, 15))
        disturbed.driver.send_signal(signal.SIGCONT)
        return second.wait(timeout), drove
    finally:
        second.kill()


def _second_driver(disturbed: Disturbed) -> bool:
    """Gives the same command a second time. It has to be refused, with exit code 2, while the first one goes on."""
    code, drove = _second(disturbed, sweep.PATIENCE)
    if disturbed.driver.poll() is None and (problem := second_problem(code, drove)):
        raise AssertionError(problem)
    return code == 2


def second_problem(code: int, drove: bool) -> str:
    """Returns what is wrong with the end of a second command while the first one ran; empty if nothing is.

    Where a run is complete, nobody drives it: both commands show it and end with exit code 0.
    """
    if code == 2 or (code == 0 and not drove):
        return ""
    how = "drove the run and " if drove else ""
    return f"the second command {how}ended with exit code {code} while the first one ran; expected 2"


def _take_over(disturbed: Disturbed) -> bool:
    """Stops the driver until its lease has expired, lets a second one take over, and wakes the first one up."""
    disturbed.driver.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_SECONDS + 2)
    code, _ = _second(disturbed, sweep.PATIENCE)
    if code != 0:
        raise AssertionError(f"the second driver ended with exit code {code}; expected 0")
    return True


def _jump(disturbed: Disturbed) -> bool:
    """Puts the clock two hours forward, and after eight seconds three hours back."""
    for seconds in (7200, -3600):
        changed = disturbed.folder / "clock.new"
        changed.write_text(str(seconds))
        changed.replace(disturbed.folder / "clock")
        time.sleep(8)
    return True


FILLER = """import sys, time
import psutil
kept = []
while psutil.virtual_memory().percent < float(sys.argv[1]) and len(kept) < psutil.virtual_memory().total // 2**26:
    kept.append(b"x" * 2**26)
time.sleep(2)
"""
"""Fills the memory of the machine up to a percentage, for two seconds."""
KILLED = "OOM kill reason"
"""What a raylet logs with each kill of its memory monitor."""


def _fill_memory(disturbed: Disturbed) -> bool:
    """Uses so much memory for two seconds that Ray kills processes. Returns whether Ray says that it has."""
    raylet = _one_of(VICTIMS["raylet"], disturbed)
    try:
        options = raylet.cmdline() if raylet else []
    except psutil.NoSuchProcess:
        return False
    logs = [
        Path(option.removeprefix("--log_dir=")) / "raylet.out" for option in options if option.startswith("--log_dir=")
    ]
    if not logs:
        return False
    before = logs[0].read_text(errors="replace").count(KILLED)
    percent = 100 * float(disturbed.place.environment[THRESHOLD]) + 2
    subprocess.run([sys.executable, "-c", FILLER, str(percent)], check=False)
    time.sleep(1)
    return logs[0].read_text(errors="replace").count(KILLED) > before


def _fill_disk(disturbed: Disturbed) -> bool:
    """Fills the disk of the run directory for five seconds."""
    disk = disturbed.folder / "disk"
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)
    is_full = shutil.disk_usage(disk).free < 65536
    time.sleep(5)
    filler.unlink()
    return is_full


def _host(disturbed: Disturbed, act: Callable[[RayHosts, str], None]) -> bool:
    """Does something to the host of the driver or to the other one, and waits until it is part of the cluster again."""
    cluster = disturbed.place.cluster
    assert cluster
    name = disturbed.chance.choice(("h1", "h2"))
    working = [line for line in cluster.network.hosts[name].processes() if " ray::" in line and "ray::IDLE" not in line]
    is_used = bool(working) or (name == "h1" and disturbed.driver.poll() is None)
    act(cluster, name)
    cluster.wait(3)
    return is_used


def _cut_off(cluster: RayHosts, name: str) -> None:
    first = cluster.raylets(name)
    cluster.network.cut(name)
    time.sleep(15)
    cluster.network.heal(name)
    until(lambda: cluster.raylets(name) not in ([], first), hosts.PATIENCE, f"Ray starts again on {name}")


def _switch_off(cluster: RayHosts, name: str) -> None:
    cluster.network.power_off(name)
    time.sleep(2)
    cluster.network.boot(name)
    cluster.join(name)
    until(lambda: cluster.raylets(name), hosts.PATIENCE, f"Ray starts again on {name}")


DISTURBANCES: dict[str, Disturbance] = {
    **{
        f"{name} killed": Disturbance(
            act=partial(_kill, victims),
            times=1 if name == "wandb" else 5,  # a sweep goes on without it
            is_observed=name in ("sandbox", "template"),
        )
        for name, victims in VICTIMS.items()
    },
    **{
        f"{name} stopped for {seconds} s": Disturbance(
            act=partial(_stop, VICTIMS[name], seconds), is_observed=name == "sandbox"
        )
        for name, seconds in (("dispatcher", 8), ("replica", 8), ("worker", 15), ("sandbox", 15), ("wandb", 8))
    },
    "second driver": Disturbance(act=_second_driver),
    "driver stopped until another takes over": Disturbance(act=_take_over, times=1),
    "clock jumps forward and back": Disturbance(act=_jump, place=_with_a_clock),
    "memory full for 2 s": Disturbance(act=_fill_memory, place=_with_little_memory, is_alone=True),
    "disk full for 5 s": Disturbance(act=_fill_disk, place=_on_small_disk),
    "host cut off for 15 s": Disturbance(act=partial(_host, act=_cut_off), place=on_hosts),
    "host switched off": Disturbance(act=partial(_host, act=_switch_off), place=on_hosts),
    "driver killed (run on S3)": Disturbance(act=partial(_kill, VICTIMS["driver"]), place=_on_object_store),
    "worker killed (run on S3)": Disturbance(act=partial(_kill, WORKERS), place=_on_object_store),
}
