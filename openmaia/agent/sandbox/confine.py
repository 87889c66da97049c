"""Confines the sandboxed process from inside, before it runs the agent's code.

The source of this module is sent to that process, so it may import only the standard library.

`sandlock` installs Landlock and most of the seccomp filter before the interpreter starts. This file adds what sandlock
cannot do: resource limits, dropping root's capabilities, and a second filter for system calls that sandlock needs while
it starts the process. If the two filters disagree, the stricter one decides.
"""

import ctypes
import os
import platform
import resource
import struct
import sys

SHARED_SLACK_MB = 1024  # libraries also occupy address space
OPEN_FILES = 128

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE_THREAD = 0x10000
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS = 0x00050000 | 1, 0x00050000 | 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

# These calls open a socket of any family, leave the process group that is killed as one, raise limits, or limit another
# process of the same user (with prlimit the agent could stop its parent).
_DENIED = {
    "x86_64": {"socket": 41, "connect": 42, "bind": 49, "setpgid": 109, "setsid": 112}
    | {"setrlimit": 160, "prlimit64": 302},
    "aarch64": {"socket": 198, "bind": 200, "connect": 203, "setpgid": 154, "setsid": 157}
    | {"setrlimit": 164, "prlimit64": 261},
}
_FORKS = {"x86_64": {"fork": 57, "vfork": 58}, "aarch64": {}}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def confine(*, memory_mb: int, cpu_seconds: int, scratch_mb: int, processes: int, parent: int, strict: bool) -> None:
    """Limits and confines this process for the rest of its lifetime. For the limits see `contract.SandboxLimits`.

    Args:
        memory_mb: Memory in MiB.
        cpu_seconds: CPU time.
        scratch_mb: Size of a file in MiB.
        processes: If it is 1, the process cannot fork.
        parent: The pid of the parent. This process is killed when the parent dies.
        strict: Whether to raise OSError if this system lacks a protection. Otherwise the others are installed.
    """
    limits = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_FSIZE: (scratch_mb << 20, scratch_mb << 20),
        resource.RLIMIT_DATA: (memory_mb << 20, memory_mb << 20),
        resource.RLIMIT_AS: ((memory_mb + SHARED_SLACK_MB) << 20, (memory_mb + SHARED_SLACK_MB) << 20),
        resource.RLIMIT_CPU: (cpu_seconds, cpu_seconds + 5),  # SIGXCPU tells the cause, SIGKILL cannot be caught
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
        os._exit(1)  # the parent died before the previous line
    _prctl(libc, _PR_SET_CHILD_SUBREAPER, 1)  # this process adopts orphans, so that the parent sees them
    _drop_capabilities(libc)
    if platform.machine() in _DENIED:
        _deny(libc, platform.machine(), forks=processes > 1)
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
    """Drops all capabilities, so that root becomes an ordinary user who owns root's files. Other users have none."""
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
    if libc.capset(header, ctypes.create_string_buffer(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _deny(libc: ctypes.CDLL, machine: str, forks: bool) -> None:
    numbers = [*_DENIED[machine].values(), *(() if forks else _FORKS[machine].values())]
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _AUDIT[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    steps += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _EPERM)]  # x32: the same calls under other numbers
    for number in numbers:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    if not forks:  # clone also starts threads; clone3 passes its flags by pointer, and libc works without it
        steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ENOSYS)]
        steps += [(_EQUAL, 0, 3, _CLONE[machine]), (_LOAD, 0, 0, 16)]
        steps += [(_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, _EPERM)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _prctl(libc, _PR_SET_SECCOMP, 2, ctypes.addressof(program))
