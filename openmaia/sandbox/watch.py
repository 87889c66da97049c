"""What the kernel does not count for us is counted here, while an experiment runs. Linux only (/proc)."""

import os

MAX_ENTRIES = 5_000
MAX_THREADS = 64
BLOCK = 512


def excess(pid: int, scratch: str, scratch_mb: int, processes: int) -> str | None:
    """Why the child has to be killed, or None."""
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
    """True if anything but the main thread is alive."""
    return _count(f"/proc/{pid}/task") > 1 or len(family(pid)) > 1


def family(pid: int) -> list[int]:
    """The process and its descendants; orphans are adopted by the child, which is a subreaper."""
    found = [pid]
    for each in found:
        for task in _names(f"/proc/{each}/task"):
            try:
                with open(f"/proc/{each}/task/{task}/children") as file:
                    found.extend(int(child) for child in file.read().split())
            except OSError:
                continue  # it ended while we looked
        if len(found) > 4 * MAX_THREADS:
            break
    return found


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _count(path: str) -> int:
    return len(_names(path))


def _tree_bytes(root: str) -> int | None:
    total = entries = 0
    folders = [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return None
                    total += entry.stat(follow_symlinks=False).st_blocks * BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue  # removed while we looked
        except OSError:
            return None  # the path grew longer than the kernel takes
    return total


def _deleted_bytes(pid: int) -> int:
    """Files that are open but have no name any more still fill the disk."""
    total = 0
    for name in _names(f"/proc/{pid}/fd"):
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if status.st_nlink == 0:
            total += status.st_blocks * BLOCK
    return total
