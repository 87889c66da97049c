"""What reads the results of a run of 100,000 units, which holds copies of the footers of a small one (`large_run`).

Scores, means and the report need whole files, and are not measured at this size. A smaller run of the same kind stands beside, so that
what is not linear can be seen. Writes its rows of end_of_run.csv.
"""

import tempfile
from pathlib import Path
from typing import Any

from measure.benchmarks.end_of_run import WIDTH, Figures, apart, make_run, score, store
from measure.benchmarks.large_run import large_run

SIZES = (2_048, 16_384, 100_000)
STEPS = ("summary", "units", "show")


def measure(smoke: bool) -> dict[str, Any]:
    """The figures of each step, each in a process of its own."""
    found: dict[tuple[str, int], Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        small = make_run(Path(folder), 16)
        score(small)
        for count in (512,) if smoke else SIZES:
            path = large_run(small, count, -(-count // WIDTH), Path(folder) / str(count)).files.root
            found |= {(step, count): apart(step, path) for step in STEPS}
    if not smoke:
        store(found, "footers")
    return {f"{step}_{count}": figures for (step, count), figures in found.items()}
