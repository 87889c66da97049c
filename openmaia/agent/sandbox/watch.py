"""Measures resources of the sandboxed process, the child, that the kernel does not limit: threads and disk space.

Linux only, because it reads /proc.
"""

import os

MAX_ENTRIES = 5_000
MAX_THREADS = 64
BLOCK = 512


def excess(pid: int, scratch: str, scratch_mb: int, processes: int) -> str | None:
    """Returns which limit on threads or files the child exceeds, so that it has to be killed.

    Args:
        pid: The pid of the child, the sandboxed process.
        scratch: Its scratch folder.
        scratch_mb: The limit on the size of its files in MiB.
        processes: The limit on its processes. It is added to a fixed limit on threads.

    Returns:
        The limit that the child exceeds, in words, or None if it exceeds none.
    """
    pids = family(pid)
    if sum(_count(f"/proc/{each}/task") for each in pids) > MAX_THREADS + processes:
        return f"it started more than {MAX_THREADS} threads"
    size = _tree_bytes(scratch)
    if size is None:
        return f"it made more than {MAX_ENTRIES} files, or too deep a tree of folders"
    if size + sum(_deleted_bytes(each) for each in pids) > scratch_mb << 20:
        return f"its files took more than {scratch_mb} MB"
    return None


def lingers(pid: int) -> bool:
    """Returns whether a process has threads besides its main thread, or descendants."""
    return _count(f"/proc/{pid}/task") > 1 or len(family(pid)) > 1


def family(pid: int) -> list[int]:
    """Returns the pids of a process and its descendants.

    The sandboxed process is a subreaper: it adopts orphans, so that they are among its descendants.
    """
    pids = [pid]
    for each in pids:
        for task in _names(f"/proc/{each}/task"):
            try:
                with open(f"/proc/{each}/task/{task}/children") as file:
                    pids.extend(int(child) for child in file.read().split())
            except OSError:
                continue  # it ended in the meantime
        if len(pids) > 4 * MAX_THREADS:
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
                    if count > MAX_ENTRIES:
                        return None
                    total += entry.stat(follow_symlinks=False).st_blocks * BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue  # it was removed in the meantime
        except OSError:
            return None  # the path is longer than the kernel accepts
    return total


def _deleted_bytes(pid: int) -> int:
    """Returns the size of open files that have been unlinked, in bytes. They still occupy the disk."""
    total = 0
    for name in _names(f"/proc/{pid}/fd"):
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if status.st_nlink == 0:
            total += status.st_blocks * BLOCK
    return total
