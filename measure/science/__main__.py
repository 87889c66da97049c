"""Measures whether descriptions are true and writes science.json at the repository's root.

    python -m measure.science [only=real,classes,planted,repeat,repeat_40,faithfulness,sanity,coverage,rule,again,effects,features,bank] [smoke=1]

Parts that were not run keep their figures in science.json. Each part runs in a process of its own.
"""

import json
from datetime import date
from typing import Any

from rich.console import Console
from rich.pretty import Pretty

from measure.measuring import asked, machine, measured
from tests.conftest import REPOSITORY

PARTS = (
    "real",
    "classes",
    "planted",
    "repeat",
    "repeat_40",
    "faithfulness",
    "sanity",
    "coverage",
    "rule",
    "again",
    "effects",
    "features",
    "bank",
)
OUT = REPOSITORY / "science.json"


def main() -> None:
    parts, smoke = asked(PARTS)
    figures: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() and not smoke else {}
    for part in parts:
        figures[part], took = measured("measure.science", part, smoke)
        made = {"took_s": took, "machine": machine(), "date": date.today().isoformat()}
        figures["made"] = figures.get("made", {}) | {part: made}
        if not smoke:
            OUT.write_text(json.dumps(figures, indent=1) + "\n")
        Console(stderr=True).print(part, Pretty(figures[part]), made)
    if smoke:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
