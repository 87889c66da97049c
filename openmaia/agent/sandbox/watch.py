"""Measures what the kernel does not limit of a sandboxed process: threads and disk space. Linux only, because it reads
/proc.
"""

import contextlib
import os
from collections.abc import Iterator

from openmaia.agent.sandbox.policy import list_readable

_MAX_ENTRIES = 5_000
_MAX_THREADS = 64
_BLOCK = 512


def find_excess(pid: int, scratch: str, scratch_mb: int, processes: int) -> str | None:
    """Returns which limit on threads or files the process exceeds, in words, or None. All its processes together may
    have _MAX_THREADS + `processes` threads.
    """
    pids = list_family(pid)
    if sum(_count(f"/proc/{each}/task") for each in pids) > _MAX_THREADS + processes:
        return f"it started more than {_MAX_THREADS} threads"
    size = _tree_bytes(scratch)
    if size is None:
        return f"it made more than {_MAX_ENTRIES} files, too deep a tree of folders, or one that cannot be read"
    if size + _deleted_bytes(pids) > scratch_mb << 20:
        return f"its files took more than {scratch_mb} MB"
    return None


def lingers(pid: int) -> bool:
    """Returns whether a process has threads besides its main thread, or descendants."""
    return _count(f"/proc/{pid}/task") > 1 or len(list_family(pid)) > 1


def list_family(pid: int) -> list[int]:
    """Returns the pids of a process and its descendants, orphans included, which the sandboxed process adopts."""
    pids = [pid]
    for each in pids:
        for task in _names(f"/proc/{each}/task"):
            try:
                with open(f"/proc/{each}/task/{task}/children") as file:
                    pids.extend(int(child) for child in file.read().split())
            except OSError:
                continue  # it ended in the meantime
        if len(pids) > 4 * _MAX_THREADS:
            break
    return pids


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _count(path: str) -> int:
    return len(_names(path))


def _tree_bytes(root: str) -> int | None:
    total = count = 0
    folders = [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > _MAX_ENTRIES:
                        return None
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue  # it was removed in the meantime
        except OSError:
            return None  # the path is longer than the kernel accepts
    return total


def _deleted_bytes(pids: list[int]) -> int:
    """Returns the size of unlinked files that are open or mapped, because they still occupy space. Files in memory are
    among them; libraries are not, because an installation may replace them while they are in use.
    """
    sizes: dict[tuple[str, int], int] = {}
    for pid in pids:
        for task in _names(f"/proc/{pid}/task"):  # a thread may have descriptors of its own
            for name in _names(f"/proc/{pid}/task/{task}/fd"):
                with contextlib.suppress(OSError):  # it was closed in the meantime
                    status = os.stat(f"/proc/{pid}/task/{task}/fd/{name}")
                    if status.st_nlink == 0:
                        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
                        sizes[device, status.st_ino] = status.st_blocks * _BLOCK
        for device, inode, size in _deleted_mappings(pid):
            sizes.setdefault((device, inode), size)
    return sum(sizes.values())


def _deleted_mappings(pid: int) -> Iterator[tuple[str, int, int]]:
    """Yields the device, inode and size of each mapping of an unlinked file. The file may occupy less than that."""
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        if line.endswith(" (deleted)"):
            addresses, _, _, device, inode, path = line.split(maxsplit=5)
            if not path.startswith(("/dev/zero", *list_readable())):  # the first is memory of several processes
                begin, end = addresses.split("-")
                yield device, int(inode), int(end, 16) - int(begin, 16)
