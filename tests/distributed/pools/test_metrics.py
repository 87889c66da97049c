"""The metrics of a pool as Prometheus reads them: from the endpoint of the node that the dispatcher runs on."""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
import ray

from openmaia.config.machine import PoolConfig
from openmaia.core.errors import ServiceError
from tests.conftest import REPOSITORY
from tests.helpers.sleeping import Sleeping, pool

pytestmark = pytest.mark.slow

DASHBOARD = REPOSITORY / "cluster/grafana/openmaia.json"
BATCH_SECONDS = 0.05
RUN = "metrics"
"""No other pool of the same Ray has this name, so that all samples with it are this module's."""
LABELS = 'role="target"', f'run="{RUN}"'

Samples = dict[str, float]
"""Values by name, of the pool of this module; the names of buckets end with their bounds."""


def sleeping_once(flag: Path) -> Sleeping:
    """The model is loaded as soon as the file exists."""
    while not flag.exists():
        time.sleep(0.05)
    return Sleeping(fixed=BATCH_SECONDS)


def exported() -> Samples:
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    text: str = build_opener(ProxyHandler({})).open(url, timeout=10).read().decode()
    lines = [line for line in text.splitlines() if line.startswith("ray_openmaia_pool_")]
    ours = [line for line in lines if all(label in line for label in LABELS)]
    bounds = [re.search(r'[{,]le="([^"]+)"', line) for line in ours]
    names = [line.partition("{")[0] + (f" {le[1]}" if le else "") for line, le in zip(ours, bounds, strict=True)]
    return {name: float(line.rpartition(" ")[2]) for name, line in zip(names, ours, strict=True)}


def wait_for(condition: Callable[[Samples], bool], seconds: float = 90.0) -> Samples:
    until, found = time.monotonic() + seconds, Samples()
    while True:
        with suppress(OSError):  # a busy node may answer too late
            if condition(found := exported()):
                return found
        assert time.monotonic() < until, found
        time.sleep(0.5)


def settled(now: Samples) -> bool:
    """Ray exports the metrics of one process in parts, in any order: a later one may be there before an earlier one."""
    batches, failures = now.get("ray_openmaia_pool_batches_total", 0), now.get("ray_openmaia_pool_failures_total", 0)
    ready = now.get("ray_openmaia_pool_replica_seconds_total", 0)
    return batches >= 4 and failures >= 1 and ready > 0 and now.get("ray_openmaia_pool_replicas", 0) > 0


@pytest.fixture(scope="module")
def samples(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Samples, Samples]]:
    """Returns what was exported while ten requests waited for the model, and after these and one that failed."""
    flag = tmp_path_factory.mktemp("metrics") / "load"
    config = PoolConfig(max_batch=4)
    with pool(partial(sleeping_once, flag), config, ready=False, run=RUN) as made, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(made.handle().ask, "double", list(range(10)))
        try:
            before = wait_for(lambda now: now.get("ray_openmaia_pool_waiting", 0) > 0)
        finally:
            flag.touch()
        asked.result(timeout=60)
        with pytest.raises(ServiceError):
            made.handle().ask("no such method", [1])
        yield before, wait_for(settled)


def test_queue_length_is_exported(samples: tuple[Samples, Samples]):
    before, after = samples
    assert before["ray_openmaia_pool_waiting"] == 10
    assert before["ray_openmaia_pool_replicas"] == 0
    assert after["ray_openmaia_pool_waiting"] == 0
    assert after["ray_openmaia_pool_replicas"] == 1


def test_batch_fill_is_exported(samples: tuple[Samples, Samples]):
    after = samples[1]
    assert after["ray_openmaia_pool_batches_total"] == 4
    assert after["ray_openmaia_pool_batch_fill_total"] == pytest.approx((4 + 4 + 2 + 1) / 4)


def test_busy_share_is_exported(samples: tuple[Samples, Samples]):
    after = samples[1]
    busy, ready = after["ray_openmaia_pool_busy_seconds_total"], after["ray_openmaia_pool_replica_seconds_total"]
    assert 3 * BATCH_SECONDS <= busy <= ready


def test_latency_of_answered_batches_is_exported(samples: tuple[Samples, Samples]):
    """The three batches waited for the model; the one that failed has no latency."""
    before, after = samples
    assert before.get("ray_openmaia_pool_latency_seconds_count", 0) == 0
    assert after["ray_openmaia_pool_latency_seconds_count"] == 3
    assert after["ray_openmaia_pool_latency_seconds_bucket 0.05"] == 0
    assert after["ray_openmaia_pool_latency_seconds_bucket 500.0"] == 3


def test_dashboard_shows_exported_metrics(samples: tuple[Samples, Samples]):
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = [re.findall(r"ray_\w+", target["expr"]) for panel in panels for target in panel["targets"]]
    assert len(panels) == 6 and all(shown)
    assert {name for names in shown for name in names} <= {name.partition(" ")[0] for name in samples[1]}
