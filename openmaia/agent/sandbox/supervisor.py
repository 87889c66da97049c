"""Starts sandboxed processes, waits for their ends, and tells the parent how they ended.

Each sandboxed process has a supervisor of its own, because sandlock forks. In a process with threads, a fork runs the
handlers that libraries have registered for it (`pthread_atfork`), and these can wait forever: OpenBLAS's handler does
while another thread multiplies matrices. A supervisor has no other threads when it forks, it holds none of the parent's
secrets, and it can leave most of the file system behind (see `view.py`).

Supervisors are forked from a template, one for each parent, because half of what a start cost were their imports. The
template imports, forks and waits: it reads no request and starts no sandbox, so that a supervisor finds nothing of other
sandboxes in its memory. It also keeps none of the descriptors that it hands on.

The source of this module is run as a script, so it may import only the standard library and sandlock.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from openmaia.agent.sandbox import view

_MAX_BYTES = 1 << 30
"""Limit of the supervisor's memory (RLIMIT_DATA). It needs less than 50 MB."""
_LOOK_SECONDS = 2.0
"""How often a process looks whether the one that it belongs to is alive. Otherwise its socket says so at once, unless a
process that was forked holds a copy of the other end."""

Reaper = Callable[[], tuple[int, int]]
"""Kills the process group, and returns (exit code, signal or -1)."""


def main() -> None:
    """Forks a supervisor for each byte that arrives on a socket, the first argument of the script, until the parent
    closes it or dies. The second argument is the folder of sandlock's package, or empty.

    A byte carries four descriptors: those of `_supervise`.
    """
    given, begun_by, own = int(sys.argv[1]), os.getppid(), os.getpid()
    requests = socket.socket(fileno=os.dup(given))  # `select` takes no descriptor above 1,023
    os.close(given)
    sys.path.append(sys.argv[2])
    with contextlib.suppress(ImportError):  # `_sandlock` tells the parent why
        importlib.import_module("sandlock")
    gc.collect()
    gc.freeze()  # a collection in a supervisor would copy the pages that it shares with the template
    while os.getppid() == begun_by:
        _collect()
        if not select.select([requests], [], [], _LOOK_SECONDS)[0]:
            continue
        data, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not data:
            _collect()
            break
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        # Linux drops descriptors that it cannot hand on. The parent sees the end of its socket.
        if len(descriptors) == 4 and _fork(descriptors[0]) == 0:
            requests.close()
            _become_supervisor(own, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _collect() -> None:
    """Removes supervisors that have ended from the table of processes."""
    with contextlib.suppress(ChildProcessError):  # there is no other
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork(answers: int) -> int:
    try:
        return os.fork()
    except OSError as error:  # too many processes or too little memory: the next attempt may succeed
        with socket.socket(fileno=os.dup(answers)) as parent:
            _send(parent, {"error": f"no supervisor could be forked: {error}"})
        return -1


def _become_supervisor(template: int, descriptors: Sequence[int]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        answers, *streams = descriptors
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _supervise(socket.socket(fileno=answers), template)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # the template's cleanup is not this process's


def _supervise(parent: socket.socket, template: int) -> None:
    """Starts the sandboxed process that the parent requests, and reports how it ended. stdin, stdout and stderr of this
    process become those of the sandboxed one.

    Each message on the socket is a line of JSON:

    1. The first message has the pid of this process, the `supervisor`.
    2. The parent sends a request with the command of the sandboxed process and the options of sandlock.
    3. The reply has the `pid` of the process, and `hidden`: whether it sees only a few paths of the file system (see
    `view.py`). If the process cannot be started, the reply has only the `error`, and this process ends.
    4. When the parent or the template dies, or the parent shuts down its end, the process is killed. The last message
    has its exit `code`, the `signal` that ended it, or -1, and `cpu`, its CPU time in seconds.
    """
    with parent, parent.makefile("r") as requests:
        _send(parent, {"supervisor": os.getpid()})
        request = json.loads(requests.readline())
        os.environ["HOME"] = request["folder"]
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
        while not select.select([parent], [], [], _LOOK_SECONDS)[0] and os.getppid() == template:
            pass
        code, number = reap()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        _send(parent, {"code": code, "signal": number, "cpu": used.ru_utime + used.ru_stime})


def _send(parent: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent died
        parent.sendall(json.dumps(message).encode() + b"\n")


def _sandlock(request: dict[str, Any]) -> tuple[int, bool, Reaper]:
    options = request["options"]
    sandlock: Any = importlib.import_module("sandlock")
    # Libraries may be links to /etc/alternatives, which would not exist. Landlock still refuses to open it.
    paths = [*options["fs_readable"], *options["fs_writable"], "/etc/alternatives"]
    hidden = view.enter(
        [path for path in paths if os.path.exists(path)], options["fs_denied"], os.path.dirname(request["folder"])
    )
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
