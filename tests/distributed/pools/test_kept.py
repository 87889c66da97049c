"""Pools that outlive a run."""

from pathlib import Path

import pytest

from openmaia.cli.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.distributed.pools import kept
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load([str(REPOSITORY / "configs/closed-form.yaml"), f"paths.runs={tmp_path}", "ray.address=auto", *PAGES])


PAGES = [
    "pictures.kind=folder",
    "generator.parts=pictures",
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


def test_kept_pools_of_another_model_are_not_used(config: Config):
    other = load([str(REPOSITORY / "configs/closed-form.yaml"), "ray.address=auto", *PAGES, "target.family=biased"])
    assert kept.pools_name(other) != kept.pools_name(config)
