"""Measures whether descriptions are true and writes science.json at the repository's root.

    python -m tests.science [only=ground_truth,real,sanity] [smoke=1]

Parts that were not run keep their figures in science.json. Each part runs in a process of its own.
"""

import json
import subprocess
import sys
import time
from datetime import date
from typing import Any

from rich.console import Console
from rich.pretty import Pretty

from tests.benchmarks.__main__ import machine
from tests.science.setting import REPOSITORY

PARTS = ("ground_truth", "real", "sanity")
OUT = REPOSITORY / "science.json"


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
        made = {"took_s": round(time.monotonic() - began, 1), "machine": machine(), "date": date.today().isoformat()}
        figures["made"] = figures.get("made", {}) | {part: made}
        if not smoke:
            OUT.write_text(json.dumps(figures, indent=1) + "\n")
        Console(stderr=True).print(part, Pretty(figures[part]), made)
    if smoke:
        print(json.dumps(figures))


def _measured(part: str, smoke: bool) -> dict[str, Any]:
    code = f"import json; from tests.science import {part} as p; print('\\n' + json.dumps(p.measure({smoke})))"
    # Spawned workers import the main module again: it has to be one that does nothing then.
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the part {part!r} failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
