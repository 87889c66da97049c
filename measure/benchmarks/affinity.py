"""How much of a conversation's past comes from its replica's prefix cache, with affinity and without.

Two vLLM replicas (a tiny model of random weights, on the CPU) behind one pool. Conversations go on side by side, turn by
turn, each with a picture and a text per turn. `cached_share`: of the tokens of the preceding prompt and reply, rounded down
to whole blocks of the cache, those that were cached. `round_robin_share`: the same where the turns of a conversation are
dealt to the replicas alternately.
"""

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import ray

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.distributed.cluster.connection import cluster
from openmaia.distributed.pools.handles import PoolAddress, PooledBackbone
from openmaia.distributed.pools.manager import manage
from openmaia.distributed.pools.run_pools import make_manager
from tests.conftest import REPOSITORY
from tests.helpers.tiny import gemma
from tests.helpers.tiny.letters import CHARACTERS

BLOCK = 32
"""Tokens per block of the prefix cache."""

BLOCKS = 4096
"""Of a replica's cache: more than all conversations fill, so that nothing is evicted."""

REPLY = 40


def config(model: Path) -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "backbone.kind=vllm",
            f"backbone.model={model}",
            "backbone.context_tokens=6144",
            "limits.reply_tokens=64",
            "backbone.eager=true",
            "backbone.dtype=float32",
            f"backbone.arguments={{block_size: {BLOCK}, num_gpu_blocks_override: {BLOCKS}}}",
            "pools.backbone.min_replicas=2",
            "ray.num_cpus=2",
        ]
    )


def converse(backbone: PooledBackbone, number: int, turns: int, *, affinity: bool) -> tuple[int, int]:
    """Tokens that came from the cache, and tokens that could have."""
    random = np.random.default_rng([number, affinity])
    messages: list[Message] = [system(f"You study neuron {number}, {affinity}. " * 10), user("Begin.")]
    cached = shared = before = 0
    for turn in range(turns):
        # Two conversations that all share, one at home on each replica, are a way to deal requests.
        name = f"{number}" if affinity else ("even", "odd")[(number + turn) % 2]
        (reply,) = backbone.reply(
            [Chat(conversation=name, messages=tuple(messages), seed=100 * number + turn, max_tokens=REPLY)]
        )
        cached += min(reply.cached_tokens, before)
        shared += before
        before = (reply.prompt_tokens + reply.generated_tokens) // BLOCK * BLOCK
        seen = "".join(random.choice(list(CHARACTERS), 300))
        image = EncodedImage.of(random.integers(0, 256, (32, 32, 3), dtype=np.uint8))
        messages += [assistant(reply.text), user(f"Observation {turn}: {seen}", image)]
    return cached, shared


def share(address: PoolAddress, conversations: int, turns: int, *, affinity: bool) -> float:
    with ThreadPoolExecutor(conversations) as threads:
        asked = [
            threads.submit(converse, PooledBackbone(address, f"{number} {affinity}"), number, turns, affinity=affinity)
            for number in range(conversations)
        ]
        found = [one.result() for one in asked]
    ray.get([address.dispatcher.leave.remote([f"{number} {affinity}"]) for number in range(conversations)], timeout=60)
    return sum(cached for cached, _ in found) / sum(shared for _, shared in found)


def _ready(address: PoolAddress) -> int:
    return ray.get(address.dispatcher.statistics.remote(), timeout=60).replicas


def measure(smoke: bool) -> dict[str, object]:
    conversations, turns = (4, 3) if smoke else (16, 8)
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        made = config(gemma.build(Path(folder) / "gemma"))
        with cluster(made):
            manager = make_manager("backbone", made, ConfigAssembly())
            address = PoolAddress(dispatcher=manager.dispatcher)
            with manage([manager]):
                while (replicas := _ready(address)) < made.pools.backbone.min_replicas:
                    time.sleep(0.5)  # the second one loads when the first one has
                kept = share(address, conversations, turns, affinity=True)
                dealt = share(address, conversations, turns, affinity=False)
    return {
        "cached_share": kept,
        "round_robin_share": dealt,
        "replicas": replicas,
        "conversations": conversations,
        "turns": turns,
    }
