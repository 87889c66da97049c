"""Ray on hosts that can be cut off, killed and switched off: the sweep finishes.

h0 holds the head, without room for investigations; the driver and the investigations are on h1 and h2.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.conftest import Meeting, Sweep, Sweeps, environment
from tests.cluster.hosts import Network, lacking, network, until

PATIENCE = 400
"""Seconds for what takes some tens on a quiet machine."""

PORT = 20_000

reason = lacking()
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(reason), reason=reason), pytest.mark.timeout(2 * PATIENCE)]

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
class Cluster:
    network: Network
    root: Path
    meeting: Meeting

    @property
    def environment(self) -> dict[str, str]:
        head = self.network.hosts["h0"].address
        return {
            **os.environ,
            **RAY,
            **environment(self.root, self.meeting),
            "RAY_ADDRESS": f"{head}:{PORT}",
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

    def drive(self, sweep: Sweep) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "ray_jobs", "run", *sweep.sources)
        return self.network.hosts["h1"].start(*command, log=self.root / "driver.out", env=self.environment)

    def raylets(self, name: str) -> list[int]:
        listed = self.network.hosts[name].run("ps", "-eo", "pid=,comm=").stdout.splitlines()
        return [int(line.split()[0]) for line in listed if line.split()[1] == "raylet"]

    def logs(self) -> str:
        logs = [*sorted(self.root.glob("*.ray")), *self.root.glob("driver.out")]
        return "\n".join(f"---- {log.name}\n{log.read_text()[-3000:]}" for log in logs)


@pytest.fixture(scope="module")
def cluster(root: Path, sweeps: Sweeps) -> Iterator[Cluster]:
    (root / "t").mkdir()
    (root / "token").write_text("0123456789abcdef" * 4)
    with network(root, ["h0", "h1", "h2"]) as made:
        meeting = sweeps.meeting("hosts")
        hosts = Cluster(made, root, meeting)
        for name in made.hosts:
            made.boot(name)
            hosts.join(name)
        hosts.wait(3)
        yield hosts


@pytest.fixture
def sweep(cluster: Cluster, sweeps: Sweeps, request: pytest.FixtureRequest) -> Iterator[Sweep]:
    """Held after three units, so that the rest is under way when something goes wrong."""
    cluster.meeting.clear()
    cluster.meeting.hold_after(3)
    name = request.node.name.removeprefix("test_")[:20]
    yield sweeps.make(name, "retries=3", "ray.investigations=8", meeting=cluster.meeting)
    print(cluster.logs())


def under_way(cluster: Cluster, sweep: Sweep) -> subprocess.Popen[bytes]:
    """The driver of a sweep that has done three units and has others under way on both hosts."""
    driver = cluster.drive(sweep)

    def begun() -> bool:
        assert driver.poll() is None, cluster.logs()
        return sweep.done() == 3 and {"h1", "h2"} <= set(sweep.meeting.visits())

    until(begun, PATIENCE, "the sweep is under way")
    return driver


def finish(cluster: Cluster, sweep: Sweep, driver: subprocess.Popen[bytes]) -> None:
    before = sweep.written()
    sweep.meeting.go_on()
    assert driver.wait(PATIENCE) == 0, cluster.logs()
    assert before.items() <= sweep.written().items(), "what was done was not done again"
    assert (sweep.done(), len(sweep.run.pending())) == (12, 0)


def test_a_host_that_is_cut_off_for_a_while(cluster: Cluster, sweep: Sweep):
    driver = under_way(cluster, sweep)
    first = cluster.raylets("h2")
    cluster.network.cut("h2")
    cluster_of_two = lambda: _alive(cluster) == 2  # noqa: E731
    until(cluster_of_two, 120, "the host is given up")
    cluster.network.heal("h2")
    finish(cluster, sweep, driver)
    until(lambda: cluster.raylets("h2") not in ([], first), 120, "another raylet is started there")
    cluster.wait(3)


def _alive(cluster: Cluster) -> int:
    command = (sys.executable, "-m", "ray_jobs.wait", "--nodes=9", "--timeout=1")
    said = cluster.network.hosts["h1"].run(*command, env=cluster.environment).stderr
    return int(said.split()[1]) if said.startswith("error:") else 0


@pytest.mark.nightly
def test_a_raylet_that_is_killed(cluster: Cluster, sweep: Sweep):
    driver = under_way(cluster, sweep)
    (raylet,) = cluster.raylets("h2")
    cluster.network.hosts["h2"].run("kill", f"-{signal.SIGKILL}", str(raylet))
    finish(cluster, sweep, driver)
    until(lambda: cluster.raylets("h2") not in ([], [raylet]), 120, "another raylet is started there")
    cluster.wait(3)


@pytest.mark.nightly
def test_a_head_that_is_switched_off_and_on_again_with_its_storage(cluster: Cluster, sweep: Sweep):
    driver = under_way(cluster, sweep)
    cluster.network.power_off("h0")
    cluster.network.boot("h0")
    cluster.join("h0")
    cluster.wait(3)
    finish(cluster, sweep, driver)


def test_hosts_are_left_as_they_were(cluster: Cluster):
    """Last: SIGTERM to ray_jobs.node ends what it started, and nothing stays in memory or on disk."""
    for host in cluster.network.hosts.values():
        (node,) = [line.split()[0] for line in host.processes() if "ray_jobs.node" in line]
        host.run("kill", node)
    until(lambda: not any(host.processes() for host in cluster.network.hosts.values()), 60, "processes end")
    assert [host.run("ls", "/dev/shm").stdout for host in cluster.network.hosts.values()] == ["", "", ""]
    left = {path.name for path in (cluster.root / "t").iterdir()}
    assert len(left) <= 1, "but for what the head left when it lost its power"
