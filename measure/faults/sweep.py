"""The sweep that is disturbed: six investigations of four turns, two at once, as the command line runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from openmaia.runs.run import Run
from tests.cluster.hosts import Host
from tests.helpers.samples import comparable
from tests.helpers.sweeping import ANSWER, sources, unit_under_investigation

LOG = "OPENMAIA_FAULTS_LOG"
"""Environment variable with the file in which each experiment notes its unit and turn."""
NAME = "disturbed"
LAYER, UNITS, EXPERIMENTS = "mono", 6, 3
PATIENCE = 1200.0
"""Seconds after which a command has hung, also where other programs want the machine's cores ten times over."""
ON_THIS_MACHINE = ("ray.num_cpus=2",)
"""The overrides of a sweep that starts Ray for itself."""


def note(turn: int) -> None:
    """Notes in the log that this turn of the unit was carried out."""
    with open(os.environ[LOG], "a") as log:
        log.write(f"{unit_under_investigation()} {turn}\n")


def command(folder: Path, *overrides: str) -> list[str]:
    """The command that runs the sweep below a folder. Each call with the same folder gives the same command.

    The first call writes its files. A further one leaves them alone: another command may be reading them.
    """
    written = folder / "command.json"
    if not written.exists():
        written.write_text(json.dumps(_sources(folder)))
    return [
        *(sys.executable, "-m", "openmaia.cli.main", "run"),
        *json.loads(written.read_text()),
        f"name={NAME}",
        f"units={LAYER}=0-{UNITS - 1}",
        "tools=[tests.helpers.sweeping:wait,measure.faults.sweep:note]",
        "ray.investigations=2",
        "sandbox.seconds=10",
        *(f"pools.{role}.deadline=5" for role in ("target", "generator", "editor", "backbone")),
        "tracking.kind=wandb",
        "tracking.mode=offline",
        *overrides,
    ]


def _sources(folder: Path) -> list[str]:
    replies = [
        f"""[CODE]:
```python
values, images = system.call_neuron(tools.text2image(["a {colour} square", "a {colour} circle"]))
tools.note({turn})
print(values, tools.wait(0.7))
```"""
        for turn, colour in zip(range(EXPERIMENTS), ("red", "green", "blue"), strict=True)
    ]
    return sources(folder, [*replies, ANSWER])


def on_cluster(address: str) -> tuple[str, ...]:
    """The overrides of a sweep on a cluster that runs."""
    return (f"ray.address={address}",)


def start(
    folder: Path, *overrides: str, environment: Mapping[str, str] = MappingProxyType({}), host: Host | None = None
) -> subprocess.Popen[bytes]:
    """Starts the command, on another host if one is given. What it says is appended to output.log in the folder."""
    given, log = command(folder, *overrides), folder / "output.log"
    variables = {**os.environ, LOG: str(folder / "turns.log"), **environment}
    if host:
        return host.start(*given, log=log, env=variables)
    with log.open("ab") as output:
        return subprocess.Popen(given, stdout=output, stderr=output, env=variables)


def carried_out(folder: Path) -> list[tuple[str, int]]:
    """The unit and the turn of each experiment that was carried out so far, in this order."""
    log = folder / "turns.log"
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [(unit, int(turn)) for unit, turn in lines]


def driver(folder: Path) -> int | None:
    """The process that drives the run, of a run beside the trial's files."""
    try:
        return json.loads((folder / "runs" / NAME / "driver.json").read_text())["pid"]
    except (OSError, ValueError):
        return None


def records(runs: str) -> list[dict[str, Any]]:
    """What the records of the run hold, without times."""
    run = Run.open(f"{runs}/{NAME}")
    return [comparable(run.record(investigation)) for investigation in sorted(run.done())]
