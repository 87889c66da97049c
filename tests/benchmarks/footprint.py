"""What an investigating process and its sandbox weigh, and how long the sandbox takes.

pss_mb: proportional set size (shared pages divided among those who share them), in MB (10^6 bytes), of an investigating
process on Ray that has run an experiment, plus its sandbox. sandbox_ms: from asking for a sandbox to its being ready.
call_1mb_ms: a tool call that carries 1 MB to the parent and back. import_ms: `import openmaia`, less an empty Python.
Medians.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from openmaia.agent.investigation import api_source
from openmaia.build import options
from openmaia.sandbox import Sandbox, Status
from openmaia.schema import Config
from tests.conftest import REPOSITORY
from tests.sweeping import ANSWER, planned, short, sources

CALLS = 21
CODE = """
import time
data = bytes(1_000_000)
times = []
for _ in range({calls}):
    began = time.perf_counter()
    assert len(system_call("echo", data)) == len(data)
    times.append(time.perf_counter() - began)
system_call("took", sorted(times)[len(times) // 2])
"""


def measure(smoke: bool) -> dict[str, Any]:
    times = 1 if smoke else 7
    with tempfile.TemporaryDirectory() as folder:
        config = short(Path(folder))
        return {
            "pss_mb": investigating_mb(Path(folder)),
            "sandbox_ms": statistics.median(sandbox_ms(config) for _ in range(times)),
            "call_1mb_ms": call_ms(config, 3 if smoke else CALLS),
            "import_ms": max(statistics.median(import_ms() for _ in range(times)), 0.0),
        }


def investigating_mb(folder: Path) -> float:
    """Measured by a tool of the agent's, from inside the process."""
    from openmaia.config import load
    from openmaia.remote.cluster import cluster
    from openmaia.remote.drive import drive
    from openmaia.remote.investigator import Job
    from openmaia.remote.services import pools
    from openmaia.store.exemplars import ExemplarStore

    weigh = "[CODE]:\n```python\nprint(tools.weigh())\n```"
    overrides = ["name=weighed", "tools=[tests.benchmarks.footprint:weigh]", "ray.investigations=1", "ray.num_cpus=2"]
    config = load([*sources(folder / "weighed", [weigh, weigh, ANSWER]), *overrides])
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
    with cluster(config), pools(config) as made:
        run = planned(config, 1)
        for _, result in drive(config, [Job(config=config, run=run, pools=made, exemplars=store)]):
            assert result.summary is not None, result.cause
        return float(str(run.record(run.plan()[0]).turns[-2].observation[0]))


def weigh() -> float:
    """MB of this process and of those it started."""
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = {int(pid) for file in children for pid in file.read_text().split()}
    return sum(_pss(pid) for pid in (os.getpid(), *found))


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def sandbox_ms(config: Config) -> float:
    began = time.perf_counter()
    with _sandbox(config) as sandbox:
        outcome = sandbox.run("", lambda name, args, kwargs: None, lambda text: None)
        assert outcome.status is Status.OK
        return (time.perf_counter() - began) * 1000


def call_ms(config: Config, calls: int) -> float:
    took: list[float] = []

    def serve(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "echo":
            return args[0]
        took.append(args[0])
        return None

    with _sandbox(config) as sandbox:
        sandbox.run(CODE.format(calls=calls), serve, lambda text: None)
    return took[0] * 1000


def _sandbox(config: Config) -> Sandbox:
    """As an investigation has one, and its bare call besides."""
    source = api_source() + "\n\n_build = build\n\n\ndef build(call, manifest):\n"
    source += "    return _build(call, manifest) | {'system_call': call}\n"
    limits = options(config).sandbox
    return Sandbox(api_source=source, manifest={"tools": {}}, limits=limits)


def import_ms() -> float:
    return _python("import openmaia") - _python("")


def _python(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
    return (time.perf_counter() - began) * 1000
