"""What the start of a sandboxed process costs: from no process to the end of its first experiment, which does nothing.

`cpu_s` is the CPU time of the process and its supervisor, `wall_s` the time until the experiment has ended, both medians.
`first_cpu_s` is the first start of a parent, which also packs the modules for the later ones.
"""

import resource
import statistics
import time
from typing import Any

from openmaia.agent.sandbox import Sandbox, SandboxLimits

LIMITS = SandboxLimits(seconds=60, cpu_seconds=60, memory_mb=1024, output_bytes=10_000)


def start() -> tuple[float, float]:
    """CPU seconds and seconds of one start."""
    before, began = cpu_seconds(), time.monotonic()
    source = "def build(call, manifest): return {}"
    with Sandbox(api_source=source, manifest=None, limits=LIMITS, allow_none=True) as sandbox:
        ended = sandbox.run("", lambda name, args, kwargs: None, lambda text: None)
        took = time.monotonic() - began
    assert ended.status == "ok", ended
    return cpu_seconds() - before, took


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(smoke: bool) -> dict[str, Any]:
    first, _ = start()
    cpu, wall = zip(*(start() for _ in range(2 if smoke else 30)), strict=True)
    return {
        "cpu_s": statistics.median(cpu),
        "wall_s": statistics.median(wall),
        "first_cpu_s": first,
        "starts": len(cpu),
    }
