"""The vLLM backbone at the size of a real model: Gemma 3 4B's architecture in bfloat16, with weights of vLLM's own making.

What is said is noise; what it costs is not. With OUT set to a folder, the throughput is written to OUT/vllm.json.
"""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply, assistant, system, user
from openmaia.models.backbones.vllm.component import VllmBackboneConfig
from tests.helpers.tiny.engine import Engine, start
from tests.helpers.tiny.gemma import GEMMA_3_4B, build_without_weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.timeout(900),
]

CONCURRENT = (1, 2, 4, 8, 16, 32, 64)
ANSWER = 128
"""Tokens per answer: random weights hardly ever end one by themselves."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    config = VllmBackboneConfig(
        kind="vllm",
        model=str(build_without_weights(tmp_path_factory.mktemp("gemma"), GEMMA_3_4B)),
        temperature=1.0,
        top_p=1.0,
        context_tokens=8192,
        images_per_prompt=8,
        concurrency=max(CONCURRENT),
        dtype="bfloat16",
        memory_fraction=0.85,
        arguments={"load_format": "dummy"},
    )
    host = start(config, gpu_share=1.0)
    yield host
    host.close()
    assert [child for child in psutil.Process().children(recursive=True) if "VLLM" in child.name()] == []


def question(seed: int) -> Chat:
    random = np.random.default_rng(seed)
    pictures = [EncodedImage.of(random.integers(0, 256, (224, 224, 3), dtype=np.uint8)) for _ in range(2)]
    messages = (system("You study neurons. " * 40), user(f"Unit {seed}. " * 20, *pictures, "What excites it?"))
    return Chat(conversation=str(seed), messages=messages, seed=seed, max_tokens=ANSWER)


def ask(host: Engine, concurrent: int, first: int) -> tuple[list[Reply], float]:
    chats = [question(first + i) for i in range(concurrent)]
    with ThreadPoolExecutor(concurrent) as threads:
        began = time.perf_counter()
        replies = list(threads.map(lambda chat: host.reply([chat])[0], chats))
        return replies, time.perf_counter() - began


def test_throughput_grows_with_concurrent_chats(host: Engine):
    ask(host, 2, first=0)
    table = list[dict[str, float]]()
    for concurrent in CONCURRENT:
        replies, seconds = ask(host, concurrent, first=1000 * concurrent)
        table.append(
            {
                "concurrent": concurrent,
                "seconds": round(seconds, 3),
                "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
                "cached_tokens": sum(reply.cached_tokens for reply in replies),
                "generated_tokens": sum(reply.generated_tokens for reply in replies),
                "generated_per_second": round(sum(reply.generated_tokens for reply in replies) / seconds, 1),
            }
        )
    if out := os.environ.get("OUT"):
        Path(out, "vllm.json").write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": table}, indent=1))
    per_second = {row["concurrent"]: row["generated_per_second"] for row in table}
    assert per_second[32] > 4 * per_second[1]


def test_second_turn_reads_the_prefix_cache(host: Engine):
    chat = question(7)
    (first,) = host.reply([chat])
    # The answer is left out: noise is not tokenized again to what it was.
    longer = (*chat.messages, assistant("It is round."), user("Go on."))
    (second,) = host.reply([Chat(conversation="7", messages=longer, seed=8, max_tokens=ANSWER)])
    assert second.cached_tokens >= 0.95 * first.prompt_tokens - 64
    assert second.prompt_tokens - first.prompt_tokens < 64
