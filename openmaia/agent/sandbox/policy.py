"""Determines which level of protection this machine offers, and what a process at this level may do.

`full`: Landlock with scopes (ABI 6, Linux 6.12). `degraded`: Landlock from ABI 3 (Linux 6.2) on. Seccomp refuses what
the scopes forbid (signals, abstract sockets, TCP) at both levels. `none`: a plain process with resource limits, which
the user has to allow. Below ABI 3, Landlock does not stop O_TRUNC outside of the scratch folder, so it counts as
`none`.
"""

import functools
import glob
import importlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from openmaia.agent.sandbox.contract import SandboxLevel, SandboxLimits
from openmaia.core.errors import SandboxError

_PACKAGES = ("numpy", "PIL", "scipy")
_FULL_ABI, _DEGRADED_ABI = 6, 3

# -I would ignore PYTHONHASHSEED, so its parts are given one by one. The environment holds these four constants only.
FLAGS = ("-s", "-P", "-S", "-B")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_CTYPE": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

# Landlock controls how files are opened, not their attributes. Sandlock's own list covers mounts, io_uring and similar
# calls. The rest acts on, or tells of, the whole machine or any process of the same user, such as the parent.
_DENIED_CALLS = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr"),
    *("removexattr", "lremovexattr", "fremovexattr", "getxattr", "lgetxattr", "fgetxattr"),
    *("listxattr", "llistxattr", "flistxattr", "flock", "name_to_handle_at", "open_by_handle_at"),
    *("memfd_create", "memfd_secret", "shmget", "semget", "msgget", "mq_open"),
    *("inotify_init", "inotify_init1", "inotify_add_watch", "fanotify_init", "syslog", "acct", "sync", "syncfs"),
    *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal"),
    *("pidfd_getfd", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp"),
    *("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "setpriority", "ioprio_set"),
    *("sched_getscheduler", "sched_getparam", "sched_getattr", "getpriority", "ioprio_get", "getpgid", "getsid"),
    *("get_robust_list", "migrate_pages", "move_pages", "mincore", "modify_ldt", "sysfs", "ustat", "io_setup"),
    # A timer could resume the process while it is suspended. Memory in pipes and allocated files grow past their limits.
    *("timer_create", "vmsplice", "splice", "tee", "fallocate"),
    *("fsopen", "fsmount", "fsconfig", "fspick", "open_tree", "move_mount", "mount_setattr", "quotactl_fd"),
)


def best_level() -> tuple[SandboxLevel, str]:
    """Returns the best level that this machine offers, and why it is not FULL, in words."""
    if not sys.platform.startswith("linux"):
        return SandboxLevel.NONE, "Landlock needs Linux"
    try:
        abi = importlib.import_module("sandlock").landlock_abi_version()
    except (ImportError, OSError) as error:
        return SandboxLevel.NONE, f"the package sandlock cannot be imported ({error})"
    if abi >= _FULL_ABI:
        return SandboxLevel.FULL, ""
    missing = f"the kernel offers Landlock ABI {abi}; full protection needs {_FULL_ABI} (Linux 6.12)"
    return (SandboxLevel.DEGRADED if abi >= _DEGRADED_ABI else SandboxLevel.NONE), missing


def choose_level(forced: SandboxLevel | None, allow_none: bool) -> SandboxLevel:
    """Returns `forced`, or the best level if it is None. Raises SandboxError if this is NONE and `allow_none` is False."""
    best, missing = best_level()
    level = best if forced is None else forced
    if level is SandboxLevel.NONE and not allow_none:
        raise SandboxError(
            f"the agent's code cannot be confined on this machine: {missing or 'no protection was asked for'}. Run on "
            "Linux 6.12 with the package sandlock, or accept that it runs unprotected: sandbox.allow_none=true"
        )
    return level


def find_python() -> str:
    """Returns the path of the base interpreter, which runs the agent's code."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


@functools.cache
def find_packages() -> dict[str, str]:
    """Returns the folders of the installed packages that the agent's code may import, by package name."""
    specs = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    origins = {name: spec.origin for name, spec in specs.items() if spec is not None and spec.origin}
    return {name: str(Path(origin).resolve().parent) for name, origin in origins.items()}


@functools.cache
def list_readable() -> tuple[str, ...]:
    """Returns the paths that the sandboxed process may read."""
    paths = {find_python(), *_standard_library(), *_shared_libraries(), "/dev/urandom", "/etc/ld.so.cache"}
    for name, home in find_packages().items():
        siblings = Path(home).parent
        paths |= {home, str(siblings / f"{name}.libs"), str(siblings / f"{name.replace('PIL', 'pillow')}.libs")}
    return tuple(sorted({os.path.realpath(path) for path in paths if os.path.exists(path)}))


@functools.cache
def list_hidden() -> tuple[str, ...]:
    """Returns the paths in readable folders that the sandboxed process may not read: installed packages that the
    agent's code may not import.
    """
    libraries, allowed = _standard_library(), [Path(path) for path in list_readable()]
    beside = {f"{library}/{name}" for library in libraries for name in ("site-packages", "dist-packages")}
    paths = list[str]()
    for folder in {Path(path).resolve() for path in beside | _base_paths("purelib", "platlib") if os.path.isdir(path)}:
        needed = {path for path in allowed if path.is_relative_to(folder)}
        paths += [str(entry) for entry in folder.iterdir() if entry not in needed] if needed else [str(folder)]
    return tuple(sorted(paths))


def _standard_library() -> set[str]:
    return _base_paths("stdlib", "platstdlib")


def _base_paths(*names: str) -> set[str]:
    # By default, `get_path` in a virtual environment returns the folders of the environment.
    base = {"installed_base": sys.base_prefix, "installed_platbase": sys.base_exec_prefix}
    variables = base | {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    return {sysconfig.get_path(name, vars=variables) for name in names}


def _shared_libraries() -> set[str]:
    """Returns the folders of the system's shared libraries, and Python's own library."""
    multiarch = str(sysconfig.get_config_var("MULTIARCH"))
    folders = {f"{prefix}/lib/{multiarch}" for prefix in ("", "/usr") if os.path.isdir(f"{prefix}/lib/{multiarch}")}
    folders = folders or {"/lib", "/usr/lib"}
    if os.path.isdir(f"{sys.base_prefix}/conda-meta"):
        folders.add(f"{sys.base_prefix}/lib")  # conda keeps its shared libraries there
    return {*folders, "/lib64", "/usr/lib64", *glob.glob(f"{sys.base_prefix}/lib/libpython*")}


def make_options(level: SandboxLevel, limits: SandboxLimits, scratch: str) -> dict[str, Any] | None:
    """Returns the options of `sandlock.Sandbox` as JSON values; None at the level NONE."""
    if level is SandboxLevel.NONE:
        return None
    scopes = ["SIGNAL_SCOPE", "ABSTRACT_UNIX_SOCKET_SCOPE", "NET_TCP", "FS_IOCTL_DEV"]
    return {
        "fs_readable": list_readable(),
        "fs_writable": [scratch, "/dev/null"],
        "fs_denied": list_hidden(),
        "cwd": scratch,
        "clean_env": True,
        "env": ENVIRONMENT,
        "max_processes": limits.processes,
        "extra_deny_syscalls": _DENIED_CALLS,
        "disable": scopes if level is SandboxLevel.DEGRADED else [],  # allow_degraded would depend on the kernel
        "random_seed": 0,
        "time_start": "2024-01-01T00:00:00Z",
        "no_randomize_memory": True,
        "deterministic_dirs": True,
    }
