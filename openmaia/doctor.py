"""What this machine can run, found out before anything heavy is loaded."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.sandbox import Level
from openmaia.sandbox.policy import best_level
from openmaia.schema import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """remedy: the exact command or setting, where there is one."""

    state: Literal["ok", "note", "missing"]
    what: str
    remedy: str = ""


def examine(sources: Sequence[str]) -> list[Finding]:
    findings = [_python(), *_versions(), _machine(), _sandbox(), _pictures()]
    if not sources:
        return findings
    try:
        config = load(sources)
    except UsageError as error:
        return [*findings, Finding(state="missing", what=error.message)]
    return [*findings, *_config(config)]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return Finding(state="ok", what=f"Python {version}")
    return Finding(
        state="missing", what=f"Python {version}; 3.11 or 3.12 is needed", remedy="make PYTHON=python3.11 setup"
    )


def _versions() -> list[Finding]:
    findings: list[Finding] = []
    for name in ("torch", "ray", "pyarrow", "numpy", "pillow", "omegaconf"):
        try:
            findings.append(Finding(state="ok", what=f"{name} {metadata.version(name)}"))
        except metadata.PackageNotFoundError:
            findings.append(Finding(state="missing", what=f"the package {name}", remedy="make setup"))
    return findings


def _machine() -> Finding:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpu = "nvidia-smi answers" if shutil.which("nvidia-smi") else "no NVIDIA GPU found: networks run on the CPU"
    return Finding(state="ok", what=f"{os.cpu_count()} CPUs, {memory:.0f} GiB of memory, {gpu}")


def _sandbox() -> Finding:
    level, reason = best_level()
    if level is Level.FULL:
        return Finding(state="ok", what="sandbox: full (Landlock with scopes)")
    if level is Level.DEGRADED:
        return Finding(state="note", what=f"sandbox: degraded ({reason}); records say so")
    return Finding(
        state="missing",
        what=f"sandbox: this machine cannot confine the agent's code ({reason})",
        remedy="pip install sandlock, or accept the risk with sandbox.allow_none=true",
    )


def _pictures() -> Finding:
    if shutil.which("apt-get"):
        return Finding(state="ok", what="apt-get: the demo's pictures can be fetched (270 MB, once)")
    return Finding(
        state="note",
        what="no apt-get: without cut-outs the collage draws shapes, patterns and colours only",
        remedy="pictures.kind=folder pictures.folder=… for pictures of your own",
    )


def _config(config: Config) -> list[Finding]:
    from openmaia.build import packages_of

    findings = [
        Finding(state="missing", what=f"{what} needs the package {package}", remedy=remedy)
        for what, package, remedy in packages_of(config)
        if find_spec(package) is None
    ]
    runs = Path(config.paths.runs).expanduser()
    parent = next(p for p in (runs, *runs.absolute().parents) if p.exists())
    if "://" not in config.paths.runs and not (parent.is_dir() and os.access(parent, os.W_OK)):
        findings.append(Finding(state="missing", what=f"{parent} cannot be written", remedy="paths.runs=… elsewhere"))
    return findings or [Finding(state="ok", what=f"config {config.name}: everything it names is installed")]
