"""The machine apart from its GPUs: Python, memory, the sandbox, pictures, the folder of the runs."""

import os
import shutil
import sys
from pathlib import Path

from openmaia.doctor.finding import GIB, Finding, missing, note, ok
from openmaia.sandbox import Level
from openmaia.sandbox.policy import best_level
from openmaia.schema import Config


def memory() -> int:
    """Main memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return ok(f"Python {version}")
    return missing(f"Python {version}; 3.11 or 3.12 is needed", "make PYTHON=python3.11 setup")


def size() -> Finding:
    return ok(f"{os.cpu_count()} CPUs, {memory() / GIB:.0f} GiB of memory")


def sandbox() -> Finding:
    level, reason = best_level()
    if level is Level.FULL:
        return ok("sandbox: full (Landlock with scopes)")
    if level is Level.DEGRADED:
        return note(f"sandbox: degraded ({reason}); records say so")
    return missing(
        f"sandbox: this machine cannot confine the agent's code ({reason})",
        "pip install sandlock, or accept the risk with sandbox.allow_none=true",
    )


def pictures() -> Finding:
    if shutil.which("apt-get"):
        return ok("apt-get: the demo's pictures can be fetched (270 MB, once)")
    return note(
        "no apt-get: without cut-outs the collage draws shapes, patterns and colours only",
        "pictures.kind=folder pictures.folder=… for pictures of your own",
    )


def folders(config: Config) -> list[Finding]:
    """That the runs can be written, and that the pictures are there."""
    findings: list[Finding] = []
    parent = existing(Path(config.paths.runs).expanduser())
    if "://" not in config.paths.runs and not (parent.is_dir() and os.access(parent, os.W_OK)):
        findings.append(missing(f"{parent} cannot be written", "paths.runs=… elsewhere"))
    own = Path(config.pictures.folder).expanduser()
    if config.pictures.kind == "folder" and not (config.pictures.folder and own.is_dir()):
        findings.append(missing(f"pictures.folder={config.pictures.folder!r} is no folder", "pictures.folder=…"))
    return findings


def existing(path: Path) -> Path:
    """The path or the nearest of its parents that is there."""
    return next(p for p in (path, *path.absolute().parents) if p.exists())
