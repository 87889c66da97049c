"""Confines the sandboxed process from inside, before it runs the agent's code.

`sandlock` installs Landlock and a seccomp filter before the interpreter starts. This file adds what it cannot do:
resource limits, dropping root's capabilities, and the filter of `system_calls.py`.

The source of this module is sent to that process, so it may import only the standard library.
"""

import ctypes
import os
import platform
import resource
import struct
import sys

from openmaia.agent.sandbox import system_calls

_SHARED_SLACK_MB = 1024  # libraries also occupy address space
_OPEN_FILES = 128

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522


def confine(*, memory_mb: int, cpu_seconds: int, scratch_mb: int, processes: int, parent: int, strict: bool) -> None:
    """Confines this process for the rest of its lifetime. For the limits see `contract.SandboxLimits`.

    When the supervisor `parent` (a pid) dies, this process is killed. `strict` raises an exception if Linux refuses a
    resource limit, or if the system call numbers of the machine are not known; otherwise this protection is left out.
    """
    limits = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_NOFILE: (_OPEN_FILES, _OPEN_FILES),
        resource.RLIMIT_FSIZE: (scratch_mb << 20, scratch_mb << 20),
        resource.RLIMIT_DATA: (memory_mb << 20, memory_mb << 20),
        resource.RLIMIT_AS: ((memory_mb + _SHARED_SLACK_MB) << 20, (memory_mb + _SHARED_SLACK_MB) << 20),
        resource.RLIMIT_CPU: (cpu_seconds, cpu_seconds + 1),  # SIGXCPU tells the cause, SIGKILL cannot be caught
    }
    for what, (soft, hard) in limits.items():
        try:
            _limit(what, soft, hard)
        except (OSError, ValueError):
            if strict:
                raise
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, _PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)  # the supervisor died before the previous line
    _prctl(libc, _PR_SET_CHILD_SUBREAPER, 1)  # this process adopts orphans, so that the parent sees them
    _drop_capabilities(libc)
    if platform.machine() in system_calls.MACHINES:
        _deny(libc, system_calls.make_program(platform.machine(), forks=processes > 1))
    elif strict:
        raise OSError(f"no system call numbers known for {platform.machine()}")


def _limit(what: int, soft: int, hard: int) -> None:
    ceiling = resource.getrlimit(what)[1]
    if ceiling != resource.RLIM_INFINITY:
        hard = min(hard, ceiling)
    resource.setrlimit(what, (min(soft, hard), hard))


def _prctl(libc: ctypes.CDLL, option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    # Root becomes an ordinary user who owns root's files. Processes of other users lost theirs when they started the
    # interpreter.
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
    if libc.capset(header, ctypes.create_string_buffer(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _deny(libc: ctypes.CDLL, steps: bytes) -> None:
    code = ctypes.create_string_buffer(steps, len(steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps) // 8, ctypes.addressof(code)))
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _prctl(libc, _PR_SET_SECCOMP, 2, ctypes.addressof(program))
