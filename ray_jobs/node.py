"""Runs one node of a Ray cluster inside a batch job.

It starts Ray with the resources of the job, restarts it after a failure, and finally ends its processes by their ids
and removes its files. cluster/slurm uses it. It works in any environment in which RAY_ADDRESS is the address of the
head. OPENMAIA_RAY_OPTIONS holds further options of `ray start` for all nodes, such as --resources, and
OPENMAIA_HEAD_OPTIONS further options for the head.

    python -m ray_jobs.node address    prints HOST:PORT for a head on this machine
    python -m ray_jobs.node head       runs the head at RAY_ADDRESS until SIGTERM
    python -m ray_jobs.node worker     joins RAY_ADDRESS, again after a failure, until SIGTERM or the end of the head
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

from ray_jobs.allocation import find_free_block, find_own_address, read_share

_PATIENCE = float(os.environ.get("OPENMAIA_HEAD_PATIENCE", "120"))
"""Time in seconds without an answer from the head after which a worker ends."""

# Ray's default of 30 seconds is too short on a busy node or a slow file system.
_SLOW = {"RAY_raylet_start_wait_time_s": "60"}

_STARTS = 3
"""Number of failed starts of Ray in a row after which the node ends."""

# Short, because paths of sockets may have 107 bytes at most.
_OWN = "r"
"""Name of Ray's own folder."""

_LAST = 15
"""Number of lines that are printed from the end of each of Ray's logs after Ray has ended by itself."""

_GRACE = 2.0
"""Time in seconds between SIGTERM and SIGKILL for Ray's processes."""

# SLURM's KillWait is 30 seconds.
_END = 10.0
"""Longest wait in seconds for killed processes to end and for files to be removed."""

_PR_SET_CHILD_SUBREAPER = 36
"""The option of prctl(2) that makes a process adopt its orphaned descendants."""


class _Stop(Exception):
    """SIGTERM or SIGINT has arrived."""


def main(role: str) -> int:
    """Runs one of the three commands of this module, and returns the exit code."""
    if role == "address":
        print(f"{find_own_address()}:{find_free_block(_number())}")
        return 0
    adopt_orphans()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    folder = _folder()
    try:
        shutil.rmtree(folder, ignore_errors=True)  # left by the same job before it was requeued
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
    # Further signals must not interrupt the clean-up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _head(folder: Path) -> int:
    host, port = os.environ["RAY_ADDRESS"].rsplit(":", 1)
    dashboard = ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={int(port) + 7}"]
    more = shlex.split(os.environ.get("OPENMAIA_HEAD_OPTIONS", ""))
    code = 1
    client = f"--ray-client-server-port={int(port) + 8}"
    for _ in range(_STARTS):
        code = _ray(folder, host, int(port), "--head", f"--port={port}", client, *dashboard, *more)
        _say(f"Ray ended with code {code}")
        _tell(folder)
        if _was_up(folder):
            break  # A new head would not know the state of the cluster, so it is not started.
        _clear(folder)
    return code


def _worker(folder: Path) -> int:
    """Runs Ray until the head has ended or _STARTS starts in a row failed. Returns the exit code."""
    # A raylet that loses the connection is declared dead by the head, and ends as soon as it reaches the head again.
    head = os.environ["RAY_ADDRESS"]
    failures = 0
    while failures < _STARTS:
        if not _answers(head):
            _say(f"no answer from the head at {head} for {_PATIENCE:g} s; leaving")
            return 0
        code = _ray(folder, find_own_address(head.rsplit(":", 1)[0]), find_free_block(_number()), f"--address={head}")
        failures = 0 if _was_up(folder) else failures + 1
        _say(f"Ray ended with code {code}; joining {head} again")
        _tell(folder)
        _clear(folder)
    _say(f"Ray did not come up {_STARTS} times; leaving")
    return 1


def _ray(folder: Path, host: str, base: int, *options: str) -> int:
    """Runs Ray on this node and returns its exit code when it ends.

    Args:
        folder: For all files of Ray and its workers. Only this user can open it.
        host: The IP address of this node.
        base: The first of PORTS ports for Ray's services.
        options: Options of `ray start`.
    """
    # Ray lets everybody write into its own folder, which is therefore inside of ours.
    scratch = folder / "tmp"
    folder.mkdir(mode=0o700)  # refuses a folder that another user has put there
    scratch.mkdir()
    ports = {
        "node-manager-port": base + 1,
        "object-manager-port": base + 2,
        "runtime-env-agent-port": base + 3,
        "dashboard-agent-listen-port": base + 4,
        "metrics-export-port": base + 5,
        # 0 means any free port. All jobs on the machine would share Ray's default range, 10002 to 19999.
        "min-worker-port": 0,
        "max-worker-port": 0,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={host}", *options]
    command += [
        f"--temp-dir={folder / _OWN}",
        "--disable-usage-stats",
        *(f"--{name}={port}" for name, port in ports.items()),
    ]
    more = [*read_share().options(), *shlex.split(os.environ.get("OPENMAIA_RAY_OPTIONS", ""))]
    _say(f"{host}: {' '.join([*options, *more])}")
    return subprocess.call(command + more, env=_SLOW | os.environ | {"TMPDIR": str(scratch)})


def _was_up(folder: Path) -> bool:
    return (folder / _OWN / "ray_current_cluster").exists()


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=2).close()
            return True
        except OSError:
            time.sleep(0.25)
    return False


def _folder() -> Path:
    # Short, as _OWN is.
    own = f"{os.environ.get('SLURM_JOB_ID', os.getpid())}-{socket.gethostname().split('.')[0][-16:]}"
    return Path(os.environ.get("OPENMAIA_TMP", "/tmp")) / f"oma-{own}"


def _number() -> int:
    return int(os.environ.get("SLURM_JOB_ID", os.getpid()))


def _tell(folder: Path) -> None:
    # The logs are removed with the folder.
    for log in sorted(folder.glob(f"{_OWN}/session_latest/logs/*")):
        if log.name.startswith(("raylet.", "gcs_server.")):
            lines = log.read_text(errors="replace").splitlines()[-_LAST:]
            print("\n".join([f"---- {log.name}", *lines]), flush=True)


def _clear(folder: Path) -> None:
    end_descendants()
    until = time.monotonic() + _END
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)  # fails if a process writes into the folder meanwhile
        time.sleep(0.1 if folder.exists() else 0)
    if folder.exists():
        _say(f"{folder} could not be removed; please remove it")


def adopt_orphans() -> None:
    """Makes this process the parent of its orphaned descendants, so that it can find and end them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """Ends all descendants of this process, after _GRACE with SIGKILL."""
    _signal_descendants(signal.SIGTERM)
    until = time.monotonic() + _GRACE
    while not _childless() and time.monotonic() < until:
        time.sleep(0.05)
    until = time.monotonic() + _END
    while not _childless() and time.monotonic() < until:
        _signal_descendants(signal.SIGKILL)  # repeated, because a process may have started another one meanwhile
        time.sleep(0.01)


def _signal_descendants(number: signal.Signals) -> None:
    for pid in find_descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _childless() -> bool:
    """Reaps ended children and returns whether none are left: no descendants at all, as this process adopts orphans."""
    # A search through /proc could miss a process whose parent ends meanwhile.
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def find_descendants(root: int) -> set[int]:
    """Returns the ids of all descendants of a process, including zombies."""
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
