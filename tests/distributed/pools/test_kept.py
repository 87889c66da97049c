"""Pools that outlive a run."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import ServiceError, UsageError
from openmaia.distributed.pools import kept
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load([str(REPOSITORY / "configs/closed-form.yaml"), f"paths.runs={tmp_path}", "ray.address=auto", *PAGES])


PAGES = [
    "pictures.kind=folder",
    "generator.parts=pictures",
    "editor.parts=pictures",
    "pictures.folder=tests",
    "backbone.kind=replay",
    "backbone.record=none.json",
]


def test_kept_pools_are_refused_on_a_cluster_of_the_runs_own():
    with pytest.raises(UsageError, match="ray start"):
        kept.up(load([str(REPOSITORY / "configs/closed-form.yaml")]), ConfigAssembly())


def test_kept_pools_serve_several_runs_and_end_when_told(ray_cluster: None, config: Config):
    name = kept.up(config, ConfigAssembly())
    try:
        assert kept.names() == [name]
        infos = []
        for _ in range(2):
            with kept.kept_or_own_pools([config], ConfigAssembly()) as made:
                infos.append(made[0].target("test").info())
        assert infos[0] == infos[1]
        assert kept.statistics(name)["target"].requests == 2
    finally:
        assert kept.down(config)
    assert not kept.down(config)


def test_pools_for_which_the_cluster_is_too_small_are_refused(ray_cluster: None, config: Config):
    config.pools.target.num_cpus, config.ray.wait_seconds = 1000, 0
    with pytest.raises(UsageError, match="no room for 1 of the target's replicas"):
        kept.up(config, ConfigAssembly())
    assert kept.names() == []


def test_pools_that_wait_for_others_are_listed_and_can_be_ended(ray_cluster: None, config: Config):
    cpus = ray.cluster_resources()["CPU"]
    with reserved(cpus - 0.5):
        waits_and_is_ended(config)
    with reserved(cpus):
        assert kept.names() == [], "nothing is reserved any more"


@contextmanager
def reserved(cpus: float) -> Iterator[None]:
    group = placement_group([{"CPU": cpus}])
    try:
        ray.get(group.ready(), timeout=60)
        yield
    finally:
        remove_placement_group(group)


def waits_and_is_ended(config: Config) -> None:
    config.pools.target.num_cpus = 1
    with ThreadPoolExecutor(1) as starting:
        waiting = starting.submit(kept.up, config, ConfigAssembly())
        name = kept.pools_name(config)
        until = time.monotonic() + 60
        while name not in kept.names():
            assert time.monotonic() < until
            time.sleep(0.1)
        assert kept.statistics(name) == {}
        assert kept.down(config)
        with pytest.raises(ServiceError):
            waiting.result(60)


def test_kept_pools_of_another_model_are_not_used(config: Config):
    other = load([str(REPOSITORY / "configs/closed-form.yaml"), "ray.address=auto", *PAGES, "target.family=biased"])
    assert kept.pools_name(other) != kept.pools_name(config)
