"""Measures what agents find out about networks that learned drawn scenes, and writes world.json beside this file.

    python -m measure.world [only=hidden,classes,prompts,units,shortcuts,spurious] [smoke=1]

Parts that were not run keep their figures in world.json. Each part runs in a process of its own.
"""

import json
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.pretty import Pretty

from measure.measuring import asked, machine, measured

PARTS = ("hidden", "classes", "prompts", "units", "shortcuts", "spurious")
OUT = Path(__file__).with_name("world.json")


def main() -> None:
    parts, smoke = asked(PARTS)
    figures: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() and not smoke else {}
    for part in parts:
        found, took = measured("measure.world", part, smoke)
        figures |= {part: found | {"took_s": took, "machine": machine(), "date": date.today().isoformat()}}
        if not smoke:
            OUT.write_text(json.dumps(figures, indent=1) + "\n")
        Console(stderr=True).print(part, Pretty(figures[part]))
    if smoke:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
