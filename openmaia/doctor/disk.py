"""Room on the disk for what has to be fetched."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from openmaia.doctor.finding import Finding, missing, ok, spoken
from openmaia.doctor.machine import existing


def room(owed: Mapping[Path, int]) -> list[Finding]:
    """owed: bytes by the folder they are fetched into. Folders on one file system share its room."""
    systems: dict[int, list[Path]] = {}
    for folder, size in owed.items():
        if size:
            systems.setdefault(existing(folder).stat().st_dev, []).append(folder)
    return [_system(folders, sum(owed[folder] for folder in folders)) for folders in systems.values()]


def _system(folders: list[Path], size: int) -> Finding:
    free = shutil.disk_usage(existing(folders[0])).free
    said = f"disk: {spoken(size)} to be fetched into {' and '.join(map(str, folders))}, {spoken(free)} free"
    if size > free:
        return missing(said, "make room, or HF_HOME and TORCH_HOME on another disk")
    return ok(said)
