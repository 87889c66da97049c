"""Ray on hosts that are cut off, killed and switched off: the sweep finishes.

The driver and the investigations are on h1 and h2.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.conftest import Meeting, Sweep, Sweeps, environment
from tests.cluster.hosts import lacking, until
from tests.cluster.ray_hosts import PATIENCE, RayHosts, ray_hosts

reason = lacking()
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif(bool(reason), reason=reason),
    pytest.mark.timeout(2 * PATIENCE),
]


@dataclass
class Cluster(RayHosts):
    """With the folder where a test and its agents meet."""

    meeting: Meeting

    def drive(self, sweep: Sweep) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "ray_jobs", "run", *sweep.sources)
        return self.network.hosts["h1"].start(*command, log=self.root / "driver.out", env=self.environment)


@pytest.fixture(scope="module")
def cluster(root: Path, sweeps: Sweeps) -> Iterator[Cluster]:
    meeting = sweeps.meeting("hosts")
    with ray_hosts(root, environment(root, meeting)) as made:
        yield Cluster(made.network, made.root, made.own, meeting)


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


def test_a_command_whose_own_host_was_cut_off_ends_and_the_next_one_goes_on(cluster: Cluster, sweep: Sweep):
    driver = under_way(cluster, sweep)
    cluster.network.cut("h1")
    until(lambda: _alive(cluster, "h2") == 2, 120, "the host is given up")
    cluster.network.heal("h1")
    assert driver.wait(PATIENCE) == 1, cluster.logs()
    said = (cluster.root / "driver.out").read_text()
    assert "Ray has ended on the node of this command" in said or "gave no answer" in said
    cluster.wait(3)
    finish(cluster, sweep, cluster.drive(sweep))


def _alive(cluster: Cluster, asked: str = "h1") -> int:
    command = (sys.executable, "-m", "ray_jobs.wait", "--nodes=9", "--timeout=1")
    said = cluster.network.hosts[asked].run(*command, env=cluster.environment).stderr
    return int(said.split()[1]) if said.startswith("error:") else 0


def test_a_raylet_that_is_killed(cluster: Cluster, sweep: Sweep):
    driver = under_way(cluster, sweep)
    (raylet,) = cluster.raylets("h2")
    cluster.network.hosts["h2"].run("kill", f"-{signal.SIGKILL}", str(raylet))
    finish(cluster, sweep, driver)
    until(lambda: cluster.raylets("h2") not in ([], [raylet]), 120, "another raylet is started there")
    cluster.wait(3)


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
