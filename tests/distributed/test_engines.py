"""The real engines together, with tiny random models: many chats through a pool, a death in the middle, and a whole
investigation in which vLLM talks and FLUX.2 klein draws and edits, loaded once."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.config.schema import Config, pool_names
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply, user
from openmaia.core.services import Edit, Generation
from openmaia.distributed.pools.handles import PooledBackbone, PooledEditor, Pools
from openmaia.distributed.pools.run_pools import run_generators
from openmaia.distributed.sweep import run_sweep
from openmaia.runs.records import Stop
from tests.distributed.test_same_records import Quiet
from tests.helpers.run_pools import pools
from tests.helpers.sweeping import sources
from tests.helpers.tiny import gemma, today

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    return [
        "backbone.kind=vllm",
        f"backbone.model={gemma.build(folder / 'gemma')}",
        "backbone.context_tokens=8192",
        "backbone.eager=true",
        "generator.kind=diffusers",
        "generator.size=64",
        f"generator.model={today.save_klein(folder / 'klein')}",
        "generator.steps=2",
        "generator.dtype=float32",
        "editor.kind=generator",
        "evaluate.pictures=8",
        "evaluate.detect=4",
        "evaluate.random_words=1",
        "limits.reply_tokens=64",
        "limits.turns=2",
        "limits.soft_turns=1",
        "ray.investigations=2",
    ]


@pytest.fixture(scope="module")
def config(engines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Config:
    return load([*sources(tmp_path_factory.mktemp("closed-form")), "units=mono=0", *engines])


def test_a_whole_investigation_with_real_engines_ends_in_order(config: Config, ray_cluster: None):
    outcome = run_sweep(config, ConfigAssembly(), Quiet())
    assert outcome.failed == {}
    assert outcome.done == 1
    for investigation in outcome.run.done():
        record = outcome.run.record(investigation)
        assert record.stop in (Stop.LIMIT, Stop.ANSWER)
        assert record.turns
        assert all(turn.prompt_tokens and turn.generated_tokens for turn in record.turns)
        assert Path(record.backbone.split(" (")[0]).name == "gemma"


def chats(count: int) -> list[Chat]:
    random = np.random.default_rng(0)
    return [
        Chat(
            conversation=f"conversation {i}",
            messages=(
                user(f"what is in picture {i}?", EncodedImage.of(random.integers(0, 256, (32, 32, 3), dtype=np.uint8))),
            ),
            seed=i,
            max_tokens=24,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def served(config: Config, ray_cluster: None) -> Iterator[Pools]:
    with pools(config) as made:
        yield made


@pytest.mark.nightly
def test_one_pool_draws_and_edits(config: Config, ray_cluster: None):
    assert pool_names(config) == ("target", "generator", "backbone")
    with run_generators([config], ConfigAssembly(), lambda line: None) as [made]:
        [drawn] = made.generator("drawing").generate([Generation(prompt="a red bus", seed=1)])
        plain, again, other = PooledEditor(made.address("editor"), "editing").edit(
            [Edit(image=drawn.image, instruction=text, seed=1) for text in ("add a dog", "add a dog", "make it blue")]
        )
    assert plain.image.digest == again.image.digest != other.image.digest


def asked(served: Pools, questions: list[Chat]) -> list[Reply]:
    backbone = PooledBackbone(served.addresses["backbone"], "test")
    with ThreadPoolExecutor(len(questions)) as callers:
        answers = [callers.submit(backbone.reply, [chat]) for chat in questions]
        return [answer.result(timeout=300)[0] for answer in answers]


@pytest.mark.nightly
def test_16_chats_at_once_are_answered_as_each_is_alone(served: Pools):
    together = asked(served, chats(16))
    alone = [asked(served, [chat])[0] for chat in chats(16)[:4]]
    assert [reply.text for reply in together[:4]] == [reply.text for reply in alone]
    assert all(reply.prompt_tokens and reply.generated_tokens for reply in together)


@pytest.mark.nightly
def test_a_backbone_killed_in_the_middle_loses_no_answer(served: Pools):
    expected = [reply.text for reply in asked(served, chats(16))]
    # Of all replicas the engine's alone has a process of its own.
    titles = {p: " ".join(p.cmdline()) for p in psutil.Process().children(recursive=True)}
    workers = [p for p, title in titles.items() if "ray::" in title or "default_worker.py" in title]
    parents = [worker for worker in workers if worker.children()]
    owners = [parent for parent in parents if "ray::Replica" in titles[parent]] or parents
    assert len(owners) == 1, titles
    with ThreadPoolExecutor(1) as other:
        answers = other.submit(asked, served, chats(16))
        time.sleep(0.2)
        owners[0].kill()
        assert [reply.text for reply in answers.result(timeout=400)] == expected
    assert served.statistics()["backbone"].deaths == 1
