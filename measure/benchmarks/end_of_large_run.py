"""What reads the results of a run of 100,000 units, which holds copies of the footers of a small one (`large_run`).

Scores, means and the report need whole files, and are not measured at this size.
"""

import tempfile
from pathlib import Path
from typing import Any

from measure.benchmarks.end_of_run import WIDTH, apart, make_run, score
from measure.benchmarks.large_run import large_run

UNITS = 100_000
STEPS = ("summary", "units", "show")


def measure(smoke: bool) -> dict[str, Any]:
    """CPU seconds, seconds and peak memory (MB) of each step, each in a process of its own."""
    count = 512 if smoke else UNITS
    with tempfile.TemporaryDirectory() as folder:
        small = make_run(Path(folder), 16)
        score(small)
        path = large_run(small, count, -(-count // WIDTH), Path(folder) / "large").files.root
        return {f"{step}_{count}": apart(step, path) for step in STEPS}
