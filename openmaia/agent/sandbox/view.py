"""Gives the supervisor, and the process that it starts, a view of the file system with a few paths only.

Landlock keeps a process from opening other files, but not from seeing that they exist, and their sizes and times. The
view is a mount namespace, which an ordinary user can make only in a user namespace. Many machines and containers do not
allow user namespaces; only the protection of Landlock remains there.

The source of this module is run as a part of the supervisor's script, so it may import only the standard library.
"""

import ctypes
import os
import sys
from collections.abc import Iterable

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 1 << 5
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_MNT_DETACH = 2


def enter(paths: Iterable[str], without: Iterable[str], folder: str) -> bool:
    """Hides all files and folders except `paths` and /proc from this process and those that it starts. Those `without`
    appear empty. The new root is mounted on an existing folder, whose content is not changed.

    Returns False if the system does not allow this. Then nothing has changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    attempt = os.fork()  # an attempt that fails halfway cannot be taken back
    if attempt == 0:
        try:
            _enter(paths, without, folder)
            os._exit(0)
        except BaseException:
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(attempt, 0)[1]) != 0:
        return False
    _enter(paths, without, folder)
    return True


def _enter(paths: Iterable[str], without: Iterable[str], folder: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _succeed(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _mount(libc, "none", "/", "", _MS_REC | _MS_PRIVATE)
    names = [name for name in os.listdir("/") if os.path.islink(f"/{name}")]  # such as /lib
    sources = {path: os.open(path, os.O_PATH) for path in {os.path.realpath(path) for path in (*paths, "/proc")}}
    _mount(libc, "tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
    for name in names:
        if any(f"{path}/".startswith(f"{os.path.realpath(f'/{name}')}/") for path in sources):
            os.symlink(os.readlink(f"/{name}"), f"{folder}/{name}")
    for path, descriptor in sorted(sources.items()):
        place, source = folder + path, f"/proc/self/fd/{descriptor}"
        if not os.path.exists(place):
            if os.path.isdir(source):
                os.makedirs(place)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.close(os.open(place, os.O_CREAT))
            _mount(libc, source, place, "", _MS_BIND | _MS_REC)
        os.close(descriptor)
    for path in without:
        if os.path.isdir(folder + path):
            _mount(libc, "tmpfs", folder + path, "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "size=4k")
        elif os.path.exists(folder + path):
            _mount(libc, "/dev/null", folder + path, "", _MS_BIND)
    os.chdir(folder)
    os.mkdir("old")
    _succeed(libc.pivot_root(b".", b"old"))
    _succeed(libc.umount2(b"/old", _MNT_DETACH))
    os.rmdir("/old")
    _mount(libc, "none", "/", "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chdir("/")


def _mount(libc: ctypes.CDLL, source: str, place: str, kind: str, flags: int, options: str = "") -> None:
    names = [os.fsencode(name) for name in (source, place, kind)]
    _succeed(libc.mount(*names, ctypes.c_ulong(flags), os.fsencode(options)))


def _succeed(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
