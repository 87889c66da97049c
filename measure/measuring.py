"""What benchmarks, science and applications have in common: parts that are asked for, each measured in a process of its own."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY


def asked(parts: Sequence[str]) -> tuple[list[str], bool]:
    """The parts named on the command line, all without `only=`; and whether `smoke=1` was given."""
    given = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    only = (given.pop("only", "") or ",".join(parts)).split(",")
    smoke = bool(given.pop("smoke", ""))
    unknown = [*given, *(set(only) - set(parts))]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; expected only={','.join(parts)} and smoke=1")
    return only, smoke


def measured(package: str, part: str, smoke: bool) -> tuple[dict[str, Any], float]:
    """What the part's `measure` gives, and the seconds it took. One part's threads, memory and Ray do not weigh on the next."""
    began = time.monotonic()
    # Spawned workers import the main module again: it has to be one that does nothing then.
    code = f"import json; from {package} import {part} as p; print('\\n' + json.dumps(p.measure({smoke})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{package}: the part {part!r} failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1]), round(time.monotonic() - began, 1)


def shown(values: Sequence[float | None] | None, form: str = ".3f") -> str:
    """An estimate with its interval, "0.736 (0.702 to 0.772)"; without one if its ends are None, "n/a" if there is none.

    Args:
        values: The estimate, the lower and the upper end of its interval.
        form: How each number is formatted.
    """
    mean, low, high = (*values, None, None)[:3] if values else (None, None, None)
    if mean is None:
        return "n/a"
    return f"{mean:{form}}" if low is None or high is None else f"{mean:{form}} ({low:{form}} to {high:{form}})"


def machine() -> str:
    """Cores and memory of this machine, and its processor's name."""
    models = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gib:.0f} GiB, {models[0] if models else platform.machine()}"


def commit() -> str:
    """The commit of this checkout, with "+" where a file of the program differs from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "openmaia", "ray_jobs", "configs")
    return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
