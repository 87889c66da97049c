"""Runs the benchmarks, prints a table and writes bench.json at the repository's root.

    python -m tests.benchmarks [only=pool,many] [smoke=1]

Parts that were not run keep their figures in bench.json. Each part runs in a process of its own.
"""

import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PARTS = ("sweep", "pool", "many", "footprint", "affinity", "exemplars", "eyes")
REPOSITORY = Path(__file__).parent.parent.parent
OUT = REPOSITORY / "bench.json"


def main() -> None:
    given = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    only = given.pop("only", "") or ",".join(PARTS)
    smoke = bool(given.pop("smoke", ""))
    unknown = [*given, *(set(only.split(",")) - set(PARTS))]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; expected only={','.join(PARTS)} and smoke=1")
    figures: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() and not smoke else {}
    for part in only.split(","):
        began = time.monotonic()
        figures[part] = _measured(part, smoke)
        figures[part]["took_s"] = round(time.monotonic() - began, 1)
        figures |= {"machine": machine(), "date": date.today().isoformat()}
        if not smoke:
            OUT.write_text(json.dumps(figures, indent=1) + "\n")
        _show(part, figures[part])
    if smoke:
        print(json.dumps(figures))


def _measured(part: str, smoke: bool) -> dict[str, Any]:
    """In a process of its own, so that one part's threads, memory and Ray do not weigh on the next."""
    code = f"import json; from tests.benchmarks import {part} as p; print('\\n' + json.dumps(p.measure({smoke})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the benchmark {part!r} failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def machine() -> str:
    """Cores and memory of this machine, and its processor's name."""
    models = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gib:.0f} GiB, {models[0] if models else platform.machine()}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def _show(part: str, figures: dict[str, Any]) -> None:
    table = Table(title=part, title_justify="left", show_header=False)
    for name, value in figures.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else json.dumps(value))
    Console(stderr=True).print(table)


if __name__ == "__main__":
    main()
