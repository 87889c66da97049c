"""Of a pool's replicas on a node the first fetches and loads alone; the others come when its weights are there."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from openmaia.config.machine import PoolConfig
from openmaia.distributed.pools.dispatch.replica_set import Staging
from tests.helpers.sleeping import Sleeping, pool

pytestmark = pytest.mark.slow

REPLICAS = 4


@dataclass(frozen=True)
class Load:
    """began, ended: on the machine's clock. fetched: it found no weights, and got them."""

    began: float
    ended: float
    fetched: bool


def loading(folder: Path, dies: bool) -> Sleeping:
    """A host that fetches its weights where there are none yet. dies: the first does, in the middle. The others load for as
    long as they are not all at it."""
    began, weights = time.time(), folder / "weights"
    missing = not weights.exists()
    (folder / f"{os.getpid()}.began").touch()
    if missing:
        time.sleep(2)
        if dies and not (folder / "died").exists():
            (folder / "died").touch()
            (folder / f"{os.getpid()}.began").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        weights.touch()
    else:
        late = time.monotonic() + 120
        while len(list(folder.glob("*.began"))) < REPLICAS:
            assert time.monotonic() < late, "the others do not load beside this one"
            time.sleep(0.05)
    (folder / f"{os.getpid()}.load").write_text(f"{began} {time.time()} {int(missing)}")
    return Sleeping()


@pytest.mark.parametrize("dies", [False, True])
def test_weights_are_fetched_once_by_a_replica_that_loads_alone(ray_cluster: None, tmp_path: Path, dies: bool):
    with pool(partial(loading, tmp_path, dies), PoolConfig(min_replicas=REPLICAS), ready=False) as made:
        made.wait_for(lambda now: now.replicas == REPLICAS, 240)
    assert (tmp_path / "died").exists() == dies
    texts = [path.read_text().split() for path in tmp_path.glob("*.load")]
    first, *others = sorted((Load(float(a), float(b), c == "1") for a, b, c in texts), key=lambda load: load.began)
    assert len(others) == REPLICAS - 1
    assert first.fetched and not any(other.fetched for other in others)
    assert all(other.began >= first.ended for other in others), "they waited for it, and loaded together"


def test_who_gets_no_further_does_not_keep_the_others_for_ever():
    async def main() -> tuple[float, list[str]]:
        staging, order = Staging(patience=0.2), list[str]()

        async def load(name: str, seconds: float) -> None:
            async with staging.turn("node"):
                await asyncio.sleep(seconds)
                order.append(name)

        began = time.monotonic()
        await asyncio.gather(load("hangs", 1.0), load("waits", 0.0), load("waits, too", 0.0))
        return time.monotonic() - began, order

    took, order = asyncio.run(main())
    assert order == ["waits", "waits, too", "hangs"]
    assert took >= 1.0


def test_nodes_do_not_wait_for_each_other():
    async def main() -> list[str]:
        staging, order = Staging(), list[str]()

        async def load(node: str, seconds: float) -> None:
            async with staging.turn(node):
                await asyncio.sleep(seconds)
                order.append(node)

        await asyncio.gather(load("slow", 0.5), load("fast", 0.0))
        return order

    assert asyncio.run(main()) == ["fast", "slow"]


def test_where_the_first_fails_the_next_is_the_first():
    async def main() -> list[str]:
        staging, order = Staging(), list[str]()

        async def load(name: str) -> None:
            async with staging.turn("node"):
                order.append(f"{name} begins")
                await asyncio.sleep(0.1)
                if name == "a":
                    raise ValueError(name)
                order.append(f"{name} ends")

        await asyncio.gather(*(load(name) for name in "abcd"), return_exceptions=True)
        return order

    order = asyncio.run(main())
    assert order[:3] == ["a begins", "b begins", "b ends"]
    assert order[3:] == ["c begins", "d begins", "c ends", "d ends"]
