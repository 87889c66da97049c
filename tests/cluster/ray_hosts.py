"""Ray on hosts that can be cut off, killed and switched off. h0 holds the head, without room for investigations."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.hosts import Network, network

PATIENCE = 400
"""Seconds for what takes some tens on a quiet machine."""

PORT = 20_000

RAY = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    # A host is given up after some seconds and not after Ray's own quarter of a minute.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
}


@dataclass
class RayHosts:
    """A Ray cluster on the hosts of a network. `own`: further environment variables of its processes."""

    network: Network
    root: Path
    own: Mapping[str, str]

    @property
    def address(self) -> str:
        return f"{self.network.hosts['h0'].address}:{PORT}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **RAY,
            **self.own,
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_TOKEN_PATH": str(self.root / "token"),
            # What the head knows outlives it.
            "RAY_gcs_storage": "rocksdb",
            "RAY_gcs_storage_path": str(self.root / "gcs"),
        }

    def join(self, name: str) -> None:
        cpus = 0 if name == "h0" else 1
        more = f"--num-cpus={cpus} --object-store-memory=100000000"
        role = "head" if name == "h0" else "worker"
        command = (sys.executable, "-m", "ray_jobs.node", role)
        self.network.hosts[name].start(
            *command, log=self.root / f"{name}.ray", env=self.environment | {"OPENMAIA_RAY_OPTIONS": more}
        )

    def wait(self, nodes: int) -> None:
        command = (sys.executable, "-m", "ray_jobs.wait", f"--nodes={nodes}", f"--timeout={PATIENCE}")
        done = self.network.hosts["h1"].run(*command, env=self.environment, timeout=PATIENCE + 60)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()

    def raylets(self, name: str) -> list[int]:
        listed = self.network.hosts[name].run("ps", "-eo", "pid=,comm=").stdout.splitlines()
        return [int(line.split()[0]) for line in listed if line.split()[1] == "raylet"]

    def logs(self) -> str:
        logs = [*sorted(self.root.glob("*.ray")), *self.root.glob("driver.out")]
        return "\n".join(f"---- {log.name}\n{log.read_text()[-3000:]}" for log in logs)


def node_environment(root: Path) -> dict[str, str]:
    """Of what `cluster/slurm` and `ray_jobs.node` start, with their files below a folder."""
    return {
        "OPENMAIA_PYTHON": sys.executable,
        "OPENMAIA_TMP": str(root / "t"),
        "TMPDIR": str(root / "tmp"),
        # Else Ray's workers yield to everything else that runs on this machine.
        "RAY_worker_niceness": "0",
        # Ray starts sooner without it, and most of the tests are not about it.
        "OPENMAIA_HEAD_OPTIONS": "--include-dashboard=false",
    }


@contextmanager
def ray_hosts(root: Path, own: Mapping[str, str]) -> Iterator[RayHosts]:
    """The hosts h0, h1 and h2, all of which have joined. The root's path is short: sockets lie below it."""
    (root / "t").mkdir()
    (root / "tmp").mkdir(exist_ok=True)
    (root / "token").write_text("0123456789abcdef" * 4)
    with network(root, ["h0", "h1", "h2"]) as made:
        cluster = RayHosts(made, root, node_environment(root) | dict(own))
        for name in made.hosts:
            made.boot(name)
            cluster.join(name)
        cluster.wait(3)
        yield cluster
