"""Runs the benchmarks, prints a table and writes results.json beside this file.

    python -m measure.benchmarks [only=pool,sweep] [smoke=1]

Parts that were not run keep their figures in results.json. Each part runs in a process of its own.
"""

import json
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from measure.measuring import asked, machine, measured

PARTS = (
    "sweep",
    "miniature",
    "pool",
    "affinity",
    "rate",
    "exemplars",
    "bank",
    "features",
    "measurements",
    "eyes",
    "image_formats",
    "hand_over",
    "browser",
    "sandbox_start",
    "end_of_run",
    "end_of_large_run",
)
OUT = Path(__file__).parent / "results.json"


def main() -> None:
    parts, smoke = asked(PARTS)
    figures: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() and not smoke else {}
    for part in parts:
        found, took = measured("measure.benchmarks", part, smoke)
        figures |= {part: found | {"took_s": took}, "machine": machine(), "date": date.today().isoformat()}
        if not smoke:
            OUT.write_text(json.dumps(figures, indent=1) + "\n")
        _show(part, figures[part])
    if smoke:
        print(json.dumps(figures))


def _show(part: str, figures: dict[str, Any]) -> None:
    table = Table(title=part, title_justify="left", show_header=False)
    for name, value in figures.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else json.dumps(value))
    Console(stderr=True).print(table)


if __name__ == "__main__":
    main()
