"""Weights come onto a node once: of a pool's replicas there the first loads alone, and the others find on the node's disk and in
its memory what the first has fetched and read. All at once they would ask the hub, or a shared disk, once each."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

PATIENCE = 900.0
"""Seconds for which the others wait for a first one that gets no further."""


class Staging:
    """Of one pool, in its event loop."""

    def __init__(self, patience: float = PATIENCE):
        self._patience = patience
        self._staged: set[str] = set()
        self._firsts: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, node: str) -> AsyncGenerator[None]:
        """In it a replica on that node loads. Where the first one fails, the next is the first."""
        is_first = await self._wait(node)
        try:
            yield
            self._staged.add(node)
        finally:
            if is_first:
                self._firsts[node].release()

    async def _wait(self, node: str) -> bool:
        first = self._firsts.setdefault(node, asyncio.Lock())
        if node in self._staged:
            return False
        try:
            await asyncio.wait_for(first.acquire(), self._patience)
        except TimeoutError:
            return False
        if node in self._staged:
            first.release()
            return False
        return True
