"""Handles through which an investigation calls pools. Each class implements the protocol of its service."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import ray

from openmaia.core.errors import OpenMaiaError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply, is_turn
from openmaia.core.money import Purse
from openmaia.core.services import (
    Edit,
    Effects,
    Exemplars,
    GeneratedImage,
    Generation,
    Intervention,
    LayerProbe,
    Probe,
    Services,
    UnitActivation,
    UsageLedger,
)
from openmaia.core.units import TargetInfo
from openmaia.distributed.failures import resolve
from openmaia.distributed.pools.dispatch.cache import cache_key
from openmaia.distributed.pools.replica import StoredImage, chat_key, pack_chat
from openmaia.distributed.pools.statistics import PoolStatistics

_OVERHEAD = 200
"""Approximate size in bytes of a request without its image."""

_LARGE = 2**16
"""Size in bytes of a call that waits for room before its requests are stored. Others are not worth a call of their own."""


@dataclass(frozen=True, slots=True)
class PoolAddress:
    """What a caller needs in order to use a pool."""

    dispatcher: Any
    """The Ray actor handle."""
    gpus: float = 0.0
    """GPUs of one replica; may be a fraction."""
    cache_identity: str = ""
    """Identifies the model in cache keys; empty if answers are not cached."""


@dataclass(frozen=True)
class BatchedHandle:
    """Base class of handles to pools that answer requests in batches."""

    role: ClassVar[str]
    address: PoolAddress
    caller: str
    """Pools serve callers round-robin."""
    ledger: UsageLedger = field(default_factory=UsageLedger)

    def _submit(self, method: str, requests: Sequence[Any], conversations: Sequence[str] = ()) -> list[Any]:
        if not requests:
            return []
        if not is_turn(requests):
            self.ledger.require(self.role)
        dispatcher, count = self.address.dispatcher, len(requests)
        size = sum(_size(request) for request in requests)
        keys = [self._key(request) for request in requests]
        if size > _LARGE:
            resolve(dispatcher.admit.remote(self.caller, count, size))
        payload = [ray.put(list(requests))]
        call = dispatcher.submit.options(name=f"{self.caller}: {method}")
        try:
            values, seconds, bill = resolve(
                call.remote(self.caller, method, payload, keys, conversations or [""] * count, size)
            )
        except OpenMaiaError as error:
            if error.bill:
                self.ledger.add(self.role, 0, 0.0, 0.0, error.bill)
            raise
        self.ledger.add(self.role, count, seconds, self.address.gpus, bill)
        return values

    def _key(self, request: Any) -> str:
        if isinstance(request, Chat):
            return chat_key(request)
        # Without a cache, too: what nobody got because another request of the call failed is kept by it.
        return cache_key(self.address.cache_identity, request) if isinstance(request, Generation | Edit) else ""


class PooledTarget(BatchedHandle):
    """The target as a pool."""

    role = "target"

    def info(self) -> TargetInfo:
        return self._submit("info", [None])[0]

    def effects(self) -> Effects:
        """Without layers for a target that is no `Changeable`, too."""
        return self._submit("effects", [None])[0]

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        return self._submit("probe", probes)

    def intervene(self, interventions: Sequence[Intervention]) -> list[npt.NDArray[np.float64]]:
        return self._submit("intervene", interventions)

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return self._submit("respond", probes)


class PooledGenerator(BatchedHandle):
    """The generator as a pool."""

    role = "generator"

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        return self._submit("generate", requests)


class PooledEditor(BatchedHandle):
    """The editor as a pool."""

    role = "editor"

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        return self._submit("edit", requests)


@dataclass(frozen=True)
class PooledBackbone(BatchedHandle):
    """The backbone as a pool. The chats of a call are answered concurrently."""

    role = "backbone"
    _images: dict[str, StoredImage] = field(default_factory=dict[str, StoredImage])
    """The images that were sent before, by digest. This process owns them in Ray's object store."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        # Only a conversation sends its images again. Those of other chats are let go with the reply.
        packed = [pack_chat(chat, self._images if chat.conversation else {}) for chat in chats]
        return self._submit("reply", packed, [chat.conversation for chat in chats])


@dataclass(frozen=True)
class Pools:
    """The pools that one run uses."""

    addresses: Mapping[str, PoolAddress]
    """By the name of the pool."""
    roles: Mapping[str, str] = field(default_factory=dict[str, str])
    """The pool of each role (`pools_by_role`). A role that is missing has the pool of its name."""
    kept: bool = False
    """Whether the pools are persistent, so that they also serve other runs."""
    purse: Purse | None = None
    """Pays the calls of the run. None: they cost nothing."""

    def _ledger(self, caller: str) -> UsageLedger:
        return UsageLedger(self.purse.terms(caller)) if self.purse else UsageLedger()

    def services(self, exemplars: Exemplars, caller: str) -> Services:
        """Returns all services for one caller, with a new ledger. The name of the caller must be unique."""
        ledger = self._ledger(caller)
        return Services(
            target=PooledTarget(self.address("target"), caller, ledger),
            exemplars=exemplars,
            generator=PooledGenerator(self.address("generator"), caller, ledger),
            editor=PooledEditor(self.address("editor"), caller, ledger),
            backbone=PooledBackbone(self.address("backbone"), caller, ledger),
            ledger=ledger,
        )

    def address(self, role: str) -> PoolAddress:
        """Returns the pool that serves a role, such as "editor"."""
        return self.addresses[self.roles.get(role, role)]

    def target(self, caller: str) -> PooledTarget:
        return PooledTarget(self.address("target"), caller, self._ledger(caller))

    def generator(self, caller: str, role: str = "generator") -> PooledGenerator:
        """`role`: "generator", or "test_generator" for the images of tests."""
        return PooledGenerator(self.address(role), caller, self._ledger(caller))

    def leave(self, caller: str) -> None:
        """Tells all pools, without waiting, that a caller has ended or died, so that they drop its requests."""
        for address in self.addresses.values():
            address.dispatcher.leave.remote([caller])
        if self.purse is not None:
            self.purse.leave(caller)

    def release_all_but(self, roles: Iterable[str]) -> None:
        """Ends the idle replicas of the pools that serve none of these roles, so that other pools can use their resources.

        A later request starts a replica again. Does nothing if the pools are persistent.
        """
        needed = {self.roles.get(role, role) for role in roles}
        for pool, address in self.addresses.items():
            if pool not in needed and not self.kept:
                address.dispatcher.release_replicas.remote()

    def statistics(self) -> dict[str, PoolStatistics]:
        """Returns the statistics by pool."""
        asked = {pool: address.dispatcher.statistics.remote() for pool, address in self.addresses.items()}
        return {pool: resolve(reference) for pool, reference in asked.items()}


def _size(request: Any) -> int:
    image = getattr(request, "image", None)
    return _OVERHEAD + (len(image.data) if isinstance(image, EncodedImage) else 0)
