"""A small SLURM of real parts: munged and slurmctld on a host of their own, a slurmd on each of the others."""

import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.hosts import NEEDS, Host, Network, network, until

PROGRAMS = (*NEEDS, "slurmctld", "slurmd", "munged", "srun")

CPUS, MEGABYTES, GPUS = 2, 12_000, 2
"""Of each host, whatever this machine has. The GPUs are devices that are nothing."""

CONFIG = """
ClusterName=openmaia
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge/socket,cred_expire=5
StateSaveLocation={root}/state
SlurmctldPidFile={root}/slurmctld.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdSpoolDir={root}/%n.spool
SlurmdPidFile={root}/%n.pid
SlurmdLogFile={root}/%n.slurmd.log
ProctrackType={proctrack}
TaskPlugin={task}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
FirstJobId={first_job}
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=20
KillWait=20
MessageTimeout=10
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName={nodes} CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:2 PreemptMode=OFF
PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=60 PreemptMode=REQUEUE
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""

# Cores are not constrained: the first of every host is the first of this machine, on which all jobs would then crowd.
CGROUP = """
CgroupPlugin=cgroup/v1
CgroupAutomount=no
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=yes
"""

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED"}


@dataclass(slots=True)
class Slurm:
    network: Network
    nodes: list[str]
    cgroups: bool
    """Whether jobs are held in cgroups, so that memory limits bind."""
    jobs: list[int] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.network.root

    def ask(self, *command: str, env: Mapping[str, str] | None = None, folder: Path = Path("/")) -> str:
        """A command on the login node."""
        done = self._login.run(*command, folder=folder, env=self._environment(env))
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    @property
    def _login(self) -> Host:
        return self.network.hosts["ctl"]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.root / "slurm.conf"), **(more or {})}

    def boot(self, node: str) -> None:
        host = self.network.boot(node)
        command = ("slurmd", "-D", "-f", f"{self.root}/slurm.conf", "-N", node)
        host.start(*command, log=self.root / f"{node}.out", env=self._environment({}))

    def submit(self, script: Path, *options: str, arguments: Sequence[str] = (), folder: Path, **env: str) -> int:
        job = int(self.ask("sbatch", "--parsable", *options, str(script), *arguments, env=env, folder=folder))
        self.jobs.append(job)
        return job

    def show(self, job: int) -> dict[str, str]:
        text = self.ask("scontrol", "show", "job", "--oneliner", str(job))
        return dict(re.findall(r"(\S+?)=(\S*)", text))

    def state(self, job: int) -> str:
        return self.show(job)["JobState"]

    def wait(self, job: int, seconds: float) -> dict[str, str]:
        """Until the job has ended and its nodes are free: what SLURM then says of it."""
        end = time.monotonic() + seconds
        while (said := self.show(job))["JobState"] not in ENDED:
            assert time.monotonic() < end, f"job {job} is {said['JobState']} after {seconds:g} s"
            time.sleep(0.3)
        return said

    def cancel(self, job: int) -> None:
        self.ask("scancel", str(job))

    def leftovers(self) -> list[str]:
        """Processes, shared memory and files of jobs on nodes that are switched on."""
        found: list[str] = []
        for name in self.nodes:
            host = self.network.hosts[name]
            if host.init:
                found += [f"{name}: {line}" for line in host.processes() if not re.search(r"\bslurmd -D\b", line)]
                found += [f"{name}: /dev/shm/{entry}" for entry in host.run("ls", "/dev/shm").stdout.split()]
        return found + [str(path) for folder in ("t", "tmp") for path in (self.root / folder).rglob("*")]

    def wait_until_empty(self, seconds: float) -> None:
        """Until no job has left anything; what is there all the same is said."""
        end = time.monotonic() + seconds
        while found := self.leftovers():
            assert time.monotonic() < end, f"{len(found)} things are left after {seconds:g} s: {found[:40]}"
            time.sleep(0.1)


@contextmanager
def slurm(root: Path, count: int = 2) -> Iterator[Slurm]:
    """A cluster of that many nodes. The root's path is short."""
    tag = os.getpid()
    nodes = [f"m{tag}n{number}" for number in range(1, count + 1)]
    cgroups = _cgroups_work()
    for folder in ("state", "munge", "t", *(f"{node}.spool" for node in nodes)):
        (root / folder).mkdir()
    root.chmod(0o755)
    with network(root, ["ctl", *nodes]) as made:
        made.boot("ctl")
        _configure(root, nodes, made.hosts["ctl"].address, cgroups)
        _munge(root, made.hosts["ctl"])
        cluster = Slurm(made, nodes, cgroups)
        controller = made.hosts["ctl"]
        controller.start(
            "slurmctld", "-D", "-f", f"{root}/slurm.conf", log=root / "ctl.out", env=cluster._environment({})
        )
        for node in nodes:
            cluster.boot(node)
        until(lambda: _idle(cluster) == count, 60, "SLURM's nodes are ready")
        try:
            yield cluster
        finally:
            for job in cluster.jobs:
                controller.run("scancel", str(job), env=cluster._environment({}))
    _remove_cgroups(nodes)


def _idle(cluster: Slurm) -> int:
    done = cluster._login.run("sinfo", "-h", "-N", "-p", "all", "-o", "%t", env=cluster._environment({}))
    return done.stdout.split().count("idle")


def _configure(root: Path, nodes: list[str], address: str, cgroups: bool) -> None:
    values = {
        "root": root,
        "controller": "ctl",
        "address": address,
        "nodes": ",".join(nodes),
        "cpus": CPUS,
        "memory": MEGABYTES,
        "gpus": GPUS,
        "first_job": 1 + os.getpid() % 40_000 * 1000,
        "proctrack": "proctrack/cgroup" if cgroups else "proctrack/linuxproc",
        "task": "task/cgroup" if cgroups else "task/none",
    }
    (root / "slurm.conf").write_text(CONFIG.format(**values))
    (root / "cgroup.conf").write_text(CGROUP)
    for number in range(GPUS):
        os.mknod(root / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    devices = f"{root}/nvidia[0-{GPUS - 1}]"
    (root / "gres.conf").write_text(f"NodeName={','.join(nodes)} Name=gpu File={devices}\n")


def _munge(root: Path, host: Host) -> None:
    key = root / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    subprocess.run(["chown", "-R", "munge:munge", str(root / "munge")], check=True)
    (root / "munge").chmod(0o755)
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
    options = [f"--{option}={root}/munge/{name}" for option, name in files.items()]
    identity = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
    host.start(*identity, "munged", "--foreground", "--force", *options, log=root / "munge.out")
    until((root / "munge" / "socket").exists, 20, "munged listens")


def _cgroups_work() -> bool:
    """Debian 12's SLURM holds jobs in cgroups of version 1 here; what it would need of version 2 is systemd."""
    return all(Path("/sys/fs/cgroup", name).is_dir() for name in ("freezer", "memory", "cpuset")) and os.access(
        "/sys/fs/cgroup/freezer", os.W_OK
    )


def _remove_cgroups(nodes: list[str]) -> None:
    for node in nodes:
        for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}"):
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts)):
                folder.rmdir()
            top.rmdir()
