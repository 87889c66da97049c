"""Investigations that end in their first turn, each writing its record: what the scheduler itself costs.

Everything is real: the closed-form target, a backbone that replays one answer, the pools, the investigating processes,
the records. Each figure comes from a run of its own in a process of its own; the clock starts when the pools are up and
stops when the last result is in the driver's hands. Units per second are those of the larger run.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

SIZES = (1_000, 10_000)
SMOKE = (40, 80)


def measure(smoke: bool) -> dict[str, Any]:
    small, large = (_apart(units) for units in (SMOKE if smoke else SIZES))
    return {
        "units_per_second": large["units_per_second"],
        "driver_mb_1k": small["driver_mb"],
        "driver_mb_10k": large["driver_mb"],
    }


def _apart(units: int) -> dict[str, Any]:
    code = f"from tests.benchmarks.many import drive_many; drive_many({units})"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def drive_many(units: int) -> None:
    """Prints what one run took. driver_mb: the most that the driver ever held, in MB (10^6 bytes)."""
    from openmaia.remote.cluster import cluster
    from openmaia.remote.drive import drive
    from openmaia.remote.investigator import Job
    from openmaia.remote.services import pools
    from openmaia.store.exemplars import ExemplarStore
    from tests.sweeping import planned, short

    with tempfile.TemporaryDirectory() as folder:
        config = short(Path(folder), "ray.num_cpus=2", "ray.investigations=16")
        run = planned(config, units)
        store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
        with cluster(config), pools(config) as made:
            made.target("warm").info()
            began = time.monotonic()
            job = Job(config=config, run=run, pools=made, exemplars=store)
            done = sum(result.summary is not None for _, result in drive(config, [job]))
            seconds = time.monotonic() - began
        assert done == units == len(run.files.names("records"))
    print(json.dumps({"units_per_second": done / seconds, "driver_mb": round(_peak(), 1)}))


def _peak() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6
