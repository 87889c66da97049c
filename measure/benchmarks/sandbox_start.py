"""What the start of a sandboxed process costs: from no process to the end of its first experiment, which does nothing.

`cpu_s` is the CPU time of the process and its supervisor, the mean of `starts`, and `wall_s` the time until the experiment
has ended, the median. `template_cpu_s` is the CPU time of a template with its first start, and `first_cpu_s` that of the
first start of a parent, which also packs the modules for the later ones.
"""

import resource
import statistics
import time
from typing import Any

from openmaia.agent.sandbox import Sandbox, SandboxLimits, template

LIMITS = SandboxLimits(seconds=60, cpu_seconds=60, memory_mb=1024, output_bytes=10_000)


def start() -> float:
    """Seconds of one start."""
    began = time.monotonic()
    source = "def build(call, manifest): return {}"
    with Sandbox(api_source=source, manifest=None, limits=LIMITS, allow_none=True) as sandbox:
        ended = sandbox.run("", lambda name, args, kwargs: None, lambda text: None)
        took = time.monotonic() - began
    assert ended.status == "ok", ended
    return took


def start_from_one_template(starts: int) -> tuple[float, list[float]]:
    """CPU seconds of a template and all that it started, and the seconds of each start."""
    before = cpu_seconds()
    took = [start() for _ in range(starts)]
    template.end()  # its CPU time counts when it has ended
    return cpu_seconds() - before, took


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(smoke: bool) -> dict[str, Any]:
    starts = 2 if smoke else 30
    first, _ = start_from_one_template(1)
    once, _ = start_from_one_template(1)
    all_of_them, wall = start_from_one_template(1 + starts)
    return {
        "cpu_s": (all_of_them - once) / starts,
        "wall_s": statistics.median(wall[1:]),
        "template_cpu_s": once,
        "first_cpu_s": first,
        "starts": starts,
    }
