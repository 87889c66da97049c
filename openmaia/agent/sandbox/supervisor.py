"""Starts one sandboxed process, waits for its end, and tells its parent how it ended.

It is a process of its own, because sandlock forks. In a process with threads, a fork runs the handlers that libraries
have registered for it (`pthread_atfork`), and these can wait forever: OpenBLAS's handler does while another thread
multiplies matrices. This process has no other threads when it forks, it holds none of the parent's secrets, and it can
leave most of the file system behind (see `view.py`).

The source of this module is run as a script, so it may import only the standard library and sandlock.
"""

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from openmaia.agent.sandbox import view

_MAX_BYTES = 1 << 30
"""Limit of the supervisor's memory (RLIMIT_DATA). It needs less than 50 MB."""

Reaper = Callable[[], tuple[int, int]]
"""Kills the process group, and returns (exit code, signal or -1)."""


def main() -> None:
    """Starts the sandboxed process that the parent requests, and reports how it ended.

    The argument of the script is the descriptor of a socket. Each message on it is a line of JSON:

    1. The parent sends a request with the command of the sandboxed process and the options of sandlock.
    2. The reply has the `pid` of the process, and `hidden`: whether it sees only a few paths of the file system (see
    `view.py`). If the process cannot be started, the reply has only the `error`, and this script ends.
    3. When the parent dies or shuts down its end, the process is killed. The last message has its exit `code`, the
    `signal` that ended it, or -1, and `cpu`, its CPU time in seconds.
    """
    parent, begun_by = socket.socket(fileno=int(sys.argv[1])), os.getppid()
    parent.set_inheritable(False)
    with parent, parent.makefile("r") as requests:
        request = json.loads(requests.readline())
        try:
            pid, hidden, reap = (_plain if request["options"] is None else _sandlock)(request)
        except Exception as error:  # the boundary: the parent reports it
            _send(parent, {"error": f"{type(error).__name__}: {error}"})
            return
        resource.setrlimit(
            resource.RLIMIT_DATA, (_MAX_BYTES, _MAX_BYTES)
        )  # if the process makes it take more, both end
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)  # these pipes belong to the sandboxed process; they end with it
        _send(parent, {"pid": pid, "hidden": hidden})
        while not select.select([parent], [], [], 2.0)[0] and os.getppid() == begun_by:
            pass  # a copy of the parent's end, in a process that it forked, may outlive the parent
        code, number = reap()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        _send(parent, {"code": code, "signal": number, "cpu": used.ru_utime + used.ru_stime})


def _send(parent: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent died
        parent.sendall(json.dumps(message).encode() + b"\n")


def _sandlock(request: dict[str, Any]) -> tuple[int, bool, Reaper]:
    options, packages = request["options"], request["packages"]
    # Libraries may be links to /etc/alternatives, which would not exist. Landlock still refuses to open it.
    paths = [*options["fs_readable"], *options["fs_writable"], f"{packages}/sandlock", "/etc/alternatives"]
    hidden = view.enter(
        [path for path in paths if os.path.exists(path)], options["fs_denied"], os.path.dirname(request["folder"])
    )
    sys.path.append(packages)
    sandlock: Any = importlib.import_module("sandlock")
    options["disable"] = [sandlock.Protection[name] for name in options["disable"]]
    process = sandlock.Sandbox(**options).popen(request["command"])

    def reap() -> tuple[int, int]:
        process.kill()
        result = process.wait(timeout=10)
        killed = result.reason is sandlock.ExitReason.KILLED
        return result.exit_code, signal.SIGKILL if killed else result.signal

    return process.pid, hidden, reap


def _plain(request: dict[str, Any]) -> tuple[int, bool, Reaper]:
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}  # which only sandlock needs
    process = subprocess.Popen(request["command"], cwd=request["folder"], env=environment, start_new_session=True)

    def reap() -> tuple[int, int]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        return (code, -1) if code >= 0 else (-1, -code)

    return process.pid, False, reap
