"""Test images are drawn by another generator than those of the investigations, in this process and through pools."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from openmaia.assembly import generators, hosts
from openmaia.assembly.evaluation import design, in_process
from openmaia.config.loading import load
from openmaia.config.schema import Config, pool_names
from openmaia.core.errors import UsageError
from openmaia.core.services import GeneratedImage, Generation
from openmaia.core.units import Unit
from openmaia.distributed.cluster.resources import of_pools
from openmaia.distributed.pools.kept import pools_name
from openmaia.distributed.pools.run_pools import cache_spec
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.protocol import evaluate_claims
from tests.helpers.run_pools import pools
from tests.helpers.tiny import flux, stable

BASE = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]
REQUESTS = [Generation(prompt=f"a red circle, scene {seed}", seed=seed, split="test") for seed in range(2)]


def drawing(section: str, model: Path) -> list[str]:
    settings = {"kind": "diffusers", "size": 64, "model": model, "steps": 1}
    return [f"{section}.{key}={value}" for key, value in (settings | {"dtype": "float32"}).items()]


@pytest.fixture(scope="module")
def config(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Stable Diffusion draws for the agents, FLUX for the test."""
    folder = tmp_path_factory.mktemp("models")
    models = stable.save_stable(folder / "stable"), flux.save_flux(folder / "flux")
    both = [*drawing("generator", models[0]), *drawing("evaluate.generator", models[1])]
    return load([*settings, *BASE, *both, "evaluate.pictures=0", "evaluate.n=2", "evaluate.judge.kind=none"])


def distance(one: Sequence[GeneratedImage], other: Sequence[GeneratedImage]) -> float:
    """Returns the mean difference of pixel values, from 0 to 255."""
    pixels = [np.stack([each.image.pixels for each in images]).astype(np.float64) for images in (one, other)]
    return float(np.abs(pixels[0] - pixels[1]).mean())


def test_test_images_come_from_the_second_generator(config: Config):
    claim = Claim(unit=Unit(target="t", layer="mono", index=0), labels=("red",))
    services = in_process(config)
    trial = evaluate_claims([claim], services, design(config))[0].trial
    assert trial.generator == config.evaluate.generator.model
    other = generators.generator(config)
    for stimulus in trial.stimuli[:2]:
        assert stimulus.digest != other.generate([Generation(prompt=stimulus.prompt, seed=0)])[0].image.digest
    assert distance(services.generator.generate(REQUESTS), other.generate(REQUESTS)) > 5


@pytest.mark.nightly
@pytest.mark.slow
def test_pools_have_a_second_generator(config: Config, ray_cluster: None):
    with pools(config) as made:
        assert set(made.addresses) == {"target", "generator", "editor", "backbone", "test_generator"}
        first, second = (
            handle("x").generate(REQUESTS)
            for handle in (made.generator, partial(made.generator, role="test_generator"))
        )
        assert made.addresses["generator"].cache_identity != made.addresses["test_generator"].cache_identity
    assert distance(first, second) > 5
    assert distance(first, hosts.host("generator", config).generate(REQUESTS)) < 1, "up to rounding within a batch"
    assert distance(second, hosts.host("test_generator", config).generate(REQUESTS)) < 1


def test_second_pool_is_planned_only_if_it_is_configured():
    second = ["evaluate.generator.kind=collage", "pools.test_generator.num_gpus=1"]
    one, two = load(BASE), load([*BASE, *second])
    assert "test_generator" not in pool_names(one)
    assert not of_pools([one])
    assert [request.name for request in of_pools([two])] == ["test_generator"]
    assert pools_name(one) != pools_name(two)
    assert cache_spec("test_generator", two) == cache_spec("generator", two), "equal generators share images"


def test_images_made_of_parts_that_the_user_may_change_are_not_cached():
    collage = [*BASE, "generator.kind=collage", "editor.kind=collage"]
    for parts, is_cached in (("packages", True), ("pictures", False)):
        config = load([*collage, f"generator.parts={parts}", f"editor.parts={parts}"])
        assert [cache_spec(role, config) is not None for role in ("generator", "editor")] == [is_cached] * 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluate.generator.kind=sketch", "evaluate.generator.kind='sketch'.*expected collage"),
        ("evaluate.generator.kind=diffusers", "evaluate.generator.model"),
    ],
)
def test_wrong_second_generator_is_refused(override: str, message: str):
    with pytest.raises(UsageError, match=message):
        load([*BASE, override])
