"""The vLLM backbone with the architecture of Gemma 3 27B in bfloat16: how long the turns of so many conversations take.

Weights are of vLLM's own making and replies are noise of the usual length. CUDA graphs without compilation: a start takes
one minute instead of three. The figures go to $OUT/backbone.json where OUT is set.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Reply, assistant, system, user
from openmaia.models.backbones.vllm.component import VllmBackboneConfig
from tests.helpers.tiny.engine import Engine, start
from tests.helpers.tiny.gemma import GEMMA_3_27B, build_without_weights

NEEDED = 75 * 2**30
"""Bytes of memory: 54 GB of weights and a KV cache for conversations."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < NEEDED,
        reason="needs a GPU of 80 GB",
    ),
    pytest.mark.timeout(1200),
]

GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8, 16]}
CONVERSATIONS = (1, 8, 16)
EXEMPLARS, EXPERIMENT = 15, 8
"""Images of the first turn, and of a later one."""
INSTRUCTIONS, OUTPUT = 4000, 300
"""Tokens of the system message and of a user message without its images. The tokenizer has one per character."""
REPLY = 400
"""Tokens per reply: random weights hardly ever end one by themselves."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Engine]:
    arguments = {"load_format": "dummy", "compilation_config": GRAPHS}
    config = VllmBackboneConfig(
        kind="vllm",
        model=str(build_without_weights(tmp_path, GEMMA_3_27B)),
        temperature=1.0,
        top_p=1.0,
        context_tokens=16384,
        images_per_prompt=EXEMPLARS + EXPERIMENT,
        concurrency=max(CONVERSATIONS),
        dtype="bfloat16",
        arguments=arguments,
    )
    host = start(config, gpu_share=1.0)
    yield host
    host.close()


def images(count: int, seed: int) -> list[EncodedImage]:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 224, 224, 3), dtype=np.uint8)
    return [EncodedImage.of(one) for one in pixels]


def first_turn(seed: int) -> tuple[Message, ...]:
    return (system("i" * INSTRUCTIONS), user(f"{seed:0{OUTPUT}d}", *images(EXEMPLARS, seed)))


def second_turn(seed: int) -> tuple[Message, ...]:
    return (assistant("r" * REPLY), user("o" * OUTPUT, *images(EXPERIMENT, 10**6 + seed)))


def ask(host: Engine, chats: Sequence[Chat]) -> tuple[list[Reply], float]:
    with ThreadPoolExecutor(len(chats)) as threads:
        began = time.perf_counter()
        replies = list(threads.map(lambda chat: host.reply([chat])[0], chats))
        return replies, time.perf_counter() - began


def figures(replies: Sequence[Reply], seconds: float) -> dict[str, float]:
    return {
        "seconds": round(seconds, 2),
        "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
        "cached_tokens": sum(reply.cached_tokens for reply in replies),
        "generated_tokens": sum(reply.generated_tokens for reply in replies),
    }


def test_conversations_share_the_engine(host: Engine) -> None:
    ask(host, [Chat(conversation="warm", messages=first_turn(0), seed=0, max_tokens=16)])
    table = dict[int, dict[str, dict[str, float]]]()
    for count in CONVERSATIONS:
        begun = [first_turn(1000 * count + i) for i in range(count)]
        opened = [
            Chat(conversation=f"{count}-{i}", messages=messages, seed=i, max_tokens=16)
            for i, messages in enumerate(begun)
        ]
        continued = [
            Chat(
                conversation=f"{count}-{i}",
                messages=messages + second_turn(1000 * count + i),
                seed=i,
                max_tokens=REPLY,
            )
            for i, messages in enumerate(begun)
        ]
        table[count] = {"exemplars are read": figures(*ask(host, opened)), "a turn": figures(*ask(host, continued))}
        print(count, table[count], flush=True)
        if out := os.environ.get("OUT"):
            written = {"gpu": torch.cuda.get_device_name(), "by_conversations": table}
            Path(out, "backbone.json").write_text(json.dumps(written, indent=1))
    assert table[8]["a turn"]["seconds"] < 8 * table[1]["a turn"]["seconds"] / 2
