"""A server whose model plays an agent at a price, for cheap investigations of the real kind."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openmaia.agent.tasks.task import load as load_task
from tests.helpers.misbehaving import Act, Asked, Server, answer, misbehaving
from tests.helpers.sweeping import ANSWER, LAYERS, sources

REPLY = 0.02
"""Dollars for a reply: 1,000 prompt tokens at 10 dollars and 100 generated ones at 100 dollars a million."""
_USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
PRICES = ("backbone.input_price=10", "backbone.output_price=100")

TURNS = 4
"""Turns until the agent answers by itself."""

UNITS = ":".join(f"{layer}={','.join(map(str, range(count)))}" for layer, count in LAYERS.items())
"""12 units; with two replicates, 24 investigations."""


def play(asked: Asked) -> Act:
    """Experiments, and answers after so many turns, or when it is asked to."""
    turns = sum(turn["role"] == "assistant" for turn in asked.turns)
    is_asked = load_task("description").final.strip()[:40] in asked.texts()[-1]
    text = ANSWER if is_asked or turns + 1 >= TURNS else f"[CODE]:\n```python\nprint({turns})\n```"
    return Act(body=answer(asked, text, usage=_USAGE), delay=0.2)


@contextmanager
def paid_server() -> Iterator[Server]:
    os.environ.setdefault("OPENAI_API_KEY", "none")
    with misbehaving() as server:
        server.otherwise = play
        yield server


def paid_sources(folder: Path, server: Server, *more: str) -> list[str]:
    """24 investigations, all at once if they run on Ray, whose agent is the server's model. Their tests cost nothing."""
    room = ("ray.investigations=24", "ray.cpus_per_investigation=0.05", "ray.memory_mb=50", "ray.num_cpus=2")
    own = ("backbone.kind=openai", "backbone.model=some-model", f"backbone.base_url={server.base}/v1")
    one = ("name=paid", f"units={UNITS}", "replicates=2", "evaluate.writer.kind=rules")
    return [*sources(folder), *one, *own, *PRICES, *room, *more]
