"""Hosts: namespaces of this machine, each with its own network, process ids, name and /dev/shm, on one switch.

The rest of the file system is shared, as a cluster's would be. Everything is ended by the process ids recorded here, and
carries this process's id in its name, so that two test runs on one machine do not meet.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

NEEDS = ("ip", "nsenter", "setpriv", "unshare", "tini")

INIT = """
mount --bind {root}/hosts.txt /etc/hosts
hostname {name}
mount -t tmpfs -o size=512m tmpfs /dev/shm
ip link set lo up
touch {root}/{name}.up
exec tini -s -- sleep infinity
"""


def lacking(programs: Sequence[str] = NEEDS) -> str:
    """Why no hosts can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in programs if not shutil.which(name, path=path)]
    if missing:
        return f"{', '.join(missing)} missing: .ci/run installs them with apt-get"
    made = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "true"], capture_output=True
    )
    return "" if made.returncode == 0 else f"no namespaces here: {made.stderr.decode().strip()}"


def until(condition, seconds: float, what: str) -> None:
    """Waits for something outside of this process, and not for ever."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.1)


@dataclass(slots=True)
class Host:
    name: str
    address: str
    process: subprocess.Popen[bytes] | None = None
    init: int = 0
    """The first process of its namespace, by its id out here."""

    def run(
        self, *command: str, folder: Path = Path("/"), env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        inside = self._inside(folder, command)
        return subprocess.run(inside, capture_output=True, text=True, timeout=timeout, env=env)

    def start(
        self, *command: str, log: Path, folder: Path = Path("/"), env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        inside = self._inside(folder, command)
        with open(log, "ab") as output:
            return subprocess.Popen(inside, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env)

    def _inside(self, folder: Path, command: Sequence[str]) -> list[str]:
        assert self.init, f"{self.name} is switched off"
        return ["nsenter", "-t", str(self.init), "-n", "-m", "-u", "-i", "-p", f"--wd={folder}", "--", *command]

    def processes(self) -> list[str]:
        """Command lines of what runs on it beside its init and whoever asks."""
        listed = self.run("ps", "-ewwo", "pid=,args=").stdout.splitlines()
        return [line.strip() for line in listed if not re.search(r"\b(sleep infinity|ps -ewwo pid=,args=)$", line)]


@dataclass(slots=True)
class Network:
    """A switch and its hosts."""

    root: Path
    subnet: str
    hosts: dict[str, Host] = field(default_factory=dict)

    @property
    def switch(self) -> str:
        return f"oma{os.getpid()}sw"

    def _namespace(self, name: str) -> str:
        return f"oma{os.getpid()}{name}"

    def _port(self, name: str) -> str:
        return f"p{list(self.hosts).index(name)}"

    def boot(self, name: str) -> Host:
        host = self.hosts[name]
        (self.root / f"{name}.up").unlink(missing_ok=True)
        space, port = self._namespace(name), self._port(name)
        _ip("netns", "add", space)
        _ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", self.switch, "link", "set", port, "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "route", "add", "default", "via", f"{self.subnet}.1")
        script = INIT.format(root=self.root, name=name)
        # nsenter and not `ip netns exec`, which puts another /sys over the cgroups.
        # A test that is killed takes its hosts along.
        enter = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{space}"]
        unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with open(self.root / f"{name}.log", "ab") as log:
            host.process = subprocess.Popen(
                [*enter, *unshare, "bash", "-ec", script],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        until((self.root / f"{name}.up").exists, 30, f"{name} starts")
        children = Path(f"/proc/{host.process.pid}/task/{host.process.pid}/children").read_text().split()
        host.init = int(children[0])
        return host

    def power_off(self, name: str) -> None:
        """What a pulled plug does: every process of the host is gone at once."""
        host = self.hosts[name]
        assert host.process
        os.kill(host.init or host.process.pid, signal.SIGKILL)
        host.process.wait(30)
        host.init = 0
        _ip("netns", "del", self._namespace(name))
        subprocess.run(["ip", "-n", self.switch, "link", "del", self._port(name)], capture_output=True)

    def cut(self, name: str) -> None:
        _ip("-n", self.switch, "link", "set", self._port(name), "down")

    def heal(self, name: str) -> None:
        _ip("-n", self.switch, "link", "set", self._port(name), "up")


@contextmanager
def network(root: Path, names: Sequence[str]) -> Iterator[Network]:
    """Hosts of these names, switched off. The root's path is short: sockets lie below it."""
    subnet = f"10.{70 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    made = Network(root, subnet)
    for number, name in enumerate(names):
        made.hosts[name] = Host(name, f"{subnet}.{10 + number}")
    lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in made.hosts.values())]
    (root / "hosts.txt").write_text("\n".join(lines) + "\n")
    _ip("netns", "add", made.switch)
    try:
        _ip("-n", made.switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", made.switch, "addr", "add", f"{subnet}.1/24", "dev", "br0")
        _ip("-n", made.switch, "link", "set", "br0", "up")
        yield made
    finally:
        for name, host in made.hosts.items():
            if host.process and host.process.poll() is None:
                made.power_off(name)
        _ip("netns", "del", made.switch)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
