"""Measures the applications against known truths and writes RESULTS.md, with how long it took.

python -m measure.applications [only=bias] [smoke=1]
"""

import json
from typing import Any

from measure.applications import results
from measure.measuring import asked, machine, measured

PARTS = ("bias",)


def main() -> None:
    parts, smoke = asked(PARTS)
    figures: dict[str, Any] = {"machine": machine()}
    for part in parts:
        found, took = measured("measure.applications", part, smoke)
        figures[part] = found | {"took_s": took}
        if not smoke:
            results.write(figures[part], figures["machine"])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
