"""Measures the applications against known truths and writes RESULTS.md, with how long it took.

python -m tests.applications [only=bias] [smoke=1]
"""

import json
import subprocess
import sys
import time
from typing import Any

from tests.applications import results
from tests.benchmarks.__main__ import machine
from tests.science.setting import REPOSITORY

PARTS = ("bias",)


def main() -> None:
    given = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    only = given.pop("only", "") or ",".join(PARTS)
    smoke = bool(given.pop("smoke", ""))
    unknown = [*given, *(set(only.split(",")) - set(PARTS))]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; expected only={','.join(PARTS)} and smoke=1")
    figures: dict[str, Any] = {"machine": machine()}
    for part in only.split(","):
        began = time.monotonic()
        figures[part] = _measured(part, smoke) | {"took_s": round(time.monotonic() - began, 1)}
        if not smoke:
            results.write(figures[part], figures["machine"])
    print(json.dumps(figures))


def _measured(part: str, smoke: bool) -> dict[str, Any]:
    code = f"import json; from tests.applications import {part} as p; print('\\n' + json.dumps(p.measure({smoke})))"
    # Spawned workers import the main module again: it has to be one that does nothing then.
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the part {part!r} failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
