"""One node of a Ray cluster inside a batch job: started with what the job was given, started again when it is lost,
ended by process id, its files removed. Used by cluster/slurm; works wherever RAY_ADDRESS says where the head is to be.
OPENMAIA_RAY_OPTIONS holds further options of `ray start`, such as --resources; OPENMAIA_HEAD_OPTIONS those of the head.

    python -m ray_jobs.node address    prints HOST:PORT for a head on this machine
    python -m ray_jobs.node head       runs the head at RAY_ADDRESS until it gets a SIGTERM
    python -m ray_jobs.node worker     joins RAY_ADDRESS, again and again, until a SIGTERM or until the head is gone
"""

import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from ray_jobs.allocation import free_block, own_address, share

PATIENCE = float(os.environ.get("OPENMAIA_HEAD_PATIENCE", "120"))
"""Seconds without an answer from the head after which a worker gives up."""

SLOW = {"RAY_raylet_start_wait_time_s": "60"}
"""Seconds for Ray's own start on a busy node or a slow file system; its default is half a minute."""

STARTS = 3
"""Of a Ray that does not come up, one after the other, before it is given up."""

LAST = 15
"""Lines of each of Ray's logs that are kept where it ended by itself."""

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for what Ray started."""

END = 10.0
"""Seconds in which what was killed has to be gone, and its files with it: SLURM's KillWait is 30."""

PR_SET_CHILD_SUBREAPER = 36


class _Stop(Exception):
    """SIGTERM arrived."""


def main(role: str) -> int:
    if role == "address":
        print(f"{own_address()}:{free_block(_number())}")
        return 0
    adopt_orphans()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    folder = _folder()
    try:
        shutil.rmtree(folder, ignore_errors=True)  # of this job before it was requeued
        return _head(folder) if role == "head" else _worker(folder)
    except _Stop:
        return 0
    finally:
        _stop_once()
        _clear(folder)


def _stop(number: int, frame: FrameType | None) -> None:
    _stop_once()
    raise _Stop


def _stop_once() -> None:
    """Tidying up is not interrupted by a second signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _head(folder: Path) -> int:
    host, port = os.environ["RAY_ADDRESS"].rsplit(":", 1)
    dashboard = ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={int(port) + 7}"]
    more = shlex.split(os.environ.get("OPENMAIA_HEAD_OPTIONS", ""))
    code = 1
    client = f"--ray-client-server-port={int(port) + 8}"
    for _ in range(STARTS):
        code = _ray(folder, host, int(port), "--head", f"--port={port}", client, *dashboard, *more)
        _say(f"Ray ended with code {code}")
        _tell(folder)
        if _was_up(folder):
            break  # what it knew is lost
        _clear(folder)
    return code


def _worker(folder: Path) -> int:
    """A raylet that was cut off ends itself when it hears from the head again; then it is time for another."""
    head = os.environ["RAY_ADDRESS"]
    failures = 0
    while failures < STARTS:
        if not _answers(head):
            _say(f"no answer from the head at {head} for {PATIENCE:g} s; leaving")
            return 0
        code = _ray(folder, own_address(head.rsplit(":", 1)[0]), free_block(_number()), f"--address={head}")
        failures = 0 if _was_up(folder) else failures + 1
        _say(f"Ray ended with code {code}; joining {head} again")
        _tell(folder)
        _clear(folder)
    _say(f"Ray did not come up {STARTS} times; leaving")
    return 1


def _ray(folder: Path, host: str, base: int, *options: str) -> int:
    """Runs until Ray on this node ends. What it and its workers write goes below the folder."""
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    folder.chmod(0o700)
    ports = {
        "node-manager-port": base + 1,
        "object-manager-port": base + 2,
        "runtime-env-agent-port": base + 3,
        "dashboard-agent-listen-port": base + 4,
        "dashboard-agent-grpc-port": base + 5,
        "metrics-export-port": base + 6,
        # Any free one: Ray's own range, 10002 to 19999, would be shared by all jobs on the machine.
        "min-worker-port": 0,
        "max-worker-port": 0,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={host}", *options]
    command += [f"--temp-dir={folder}", "--disable-usage-stats", *(f"--{name}={port}" for name, port in ports.items())]
    more = [*share().options(), *shlex.split(os.environ.get("OPENMAIA_RAY_OPTIONS", ""))]
    _say(f"{host}: {' '.join([*options, *more])}")
    return subprocess.call(command + more, env=SLOW | os.environ | {"TMPDIR": str(scratch)})


def _was_up(folder: Path) -> bool:
    return (folder / "ray_current_cluster").exists()


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=2).close()
            return True
        except OSError:
            time.sleep(0.25)
    return False


def _folder() -> Path:
    """Short, since sockets lie below it and their paths may have 107 bytes."""
    own = f"{os.environ.get('SLURM_JOB_ID', os.getpid())}-{socket.gethostname().split('.')[0][-16:]}"
    return Path(os.environ.get("OPENMAIA_TMP", "/tmp")) / f"oma-{own}"


def _number() -> int:
    return int(os.environ.get("SLURM_JOB_ID", os.getpid()))


def _tell(folder: Path) -> None:
    """The ends of the logs that are about to be removed."""
    for log in sorted(folder.glob("session_latest/logs/*")):
        if log.name.startswith(("raylet.", "gcs_server.")):
            lines = log.read_text(errors="replace").splitlines()[-LAST:]
            print("\n".join([f"---- {log.name}", *lines]), flush=True)


def _clear(folder: Path) -> None:
    end_descendants()
    until = time.monotonic() + END
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)  # which gives up where something was written meanwhile
        time.sleep(0.1 if folder.exists() else 0)
    if folder.exists():
        _say(f"{folder} could not be removed; please remove it")


def adopt_orphans() -> None:
    """Makes the orphans of Ray our children, so that they can be found and ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """SIGTERM, then SIGKILL, for everything that comes from this process and for nothing else."""
    _signal_descendants(signal.SIGTERM)
    until = time.monotonic() + GRACE
    while not _childless() and time.monotonic() < until:
        time.sleep(0.05)
    until = time.monotonic() + END
    while not _childless() and time.monotonic() < until:
        _signal_descendants(signal.SIGKILL)  # again and again: one may have begun another while we looked
        time.sleep(0.01)


def _signal_descendants(number: signal.Signals) -> None:
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _childless() -> bool:
    """Whether nothing is left that comes from us: orphans are adopted, so that who has no child has no descendant. The
    kernel says it at once, while a walk through /proc misses a process whose parent ends meanwhile."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def descendants(root: int) -> set[int]:
    """Processes that come from this one, zombies included."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        found.update(below)
    return found


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("address", "head", "worker"):
        sys.exit("usage: python -m ray_jobs.node address|head|worker")
    sys.exit(main(sys.argv[1]))
