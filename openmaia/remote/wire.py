"""Asks what other processes of a run answer, over gRPC: a call takes a third of the time that Ray's take.

Ray starts the processes, finds them, and says when one is gone; only what they ask each other goes directly. An answer is
opened only where it is sealed with the listener's key: a port passes from one process to another.
"""

import asyncio
import os
import threading
import time
from typing import Any

import grpc
import ray
from ray._common.tls_utils import load_certs_from_env

from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.remote.failures import resolve
from openmaia.remote.listener import OPTIONS, SERVICE, Address
from openmaia.remote.seal import MAC, Forged

PATIENCE = 60.0
"""Seconds for which a listener that Ray says is alive may be out of reach."""


class Gone(Exception):
    """Nobody answers there any more, or not who should."""


class Raised(Exception):
    """What was called raised. cause: the error, where it is one of ours. The text is its last line."""

    def __init__(self, cause: OpenMaiaError | None, said: str):
        super().__init__(said)
        self.cause = cause


class Connection:
    """To one listener, from an event loop."""

    def __init__(self, address: Address):
        self._channel = _channel(grpc.aio, address)
        self._address = address
        self._is_closed = False

    async def reach(self) -> None:
        """Raises ServiceError where it cannot be reached from here."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), PATIENCE)
        except TimeoutError:
            raise _unreachable(self._address) from None

    async def call(self, method: str, *arguments: Any) -> Any:
        """Raises Raised, and Gone where the listener is, or ends meanwhile."""
        if self._is_closed:
            raise Gone("it was given up")
        request = _request(self._address, method, arguments)
        try:
            answer = await self._channel.unary_unary(SERVICE + method)(request)
        except (grpc.RpcError, grpc.aio.UsageError, grpc.aio.InternalError) as error:
            raise Gone(str(error)) from None
        except asyncio.CancelledError:
            if self._is_closed:
                raise Gone("it was given up") from None
            raise
        return _result(self._address, request, answer)

    async def close(self) -> None:
        """Calls under way raise Gone."""
        self._is_closed = True
        await self._channel.close(None)


class Wire:
    """To an actor with an `address`, from any thread. Ray may start the actor anew: then the new one is asked again."""

    def __init__(self, actor: Any):
        self._actor = actor
        self._lock = threading.Lock()
        self._known: tuple[Address, Any] | None = None

    def call(self, method: str, *arguments: Any) -> Any:
        """Raises Raised, and ServiceError where the actor is dead for good or lives out of reach."""
        tried, since = None, 0.0
        while True:
            address, channel = self._connected()
            began = time.monotonic()
            request = _request(address, method, arguments)
            try:
                return _result(address, request, channel.unary_unary(SERVICE + method)(request))
            except (grpc.RpcError, Gone):
                self._forget(channel)
                now = time.monotonic()
                if address != tried or now - began > PATIENCE:  # another, or it was there until now
                    tried, since = address, now
                elif now - since > PATIENCE:
                    raise _unreachable(address) from None
                time.sleep(0.1)

    def _connected(self) -> tuple[Address, Any]:
        with self._lock:
            if self._known is None:
                address: Address = resolve(self._actor.address.remote())
                self._known = address, _channel(grpc, address)
            return self._known

    def _forget(self, channel: Any) -> None:
        """Unless another thread has made a new one."""
        with self._lock:
            if self._known is not None and self._known[1] is channel:
                self._known = None


_wires: dict[Any, Wire] = {}
_lock = threading.Lock()


def wire(actor: Any) -> Wire:
    """Threads share a connection."""
    with _lock:
        if actor._actor_id not in _wires:
            _wires[actor._actor_id] = Wire(actor)
        return _wires[actor._actor_id]


def forget(actor: Any) -> None:
    """Ray may end it when nobody else holds it."""
    with _lock:
        _wires.pop(actor._actor_id, None)


def _request(address: Address, method: str, arguments: tuple[Any, ...]) -> bytes:
    return address.seal.close(arguments, method.encode())


def _result(address: Address, request: bytes, answer: bytes) -> Any:
    try:
        went_well, content = address.seal.open(answer, request[:MAC])
    except Forged as error:
        raise Gone(f"{address.target}: {error}") from None
    if went_well:
        return content
    raise Raised(*content)


def _credentials() -> Any:
    """None where Ray does not encrypt either."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    chain, key, authority = load_certs_from_env()
    return grpc.ssl_channel_credentials(root_certificates=authority, private_key=key, certificate_chain=chain)


def _channel(kind: Any, address: Address) -> Any:
    """kind: grpc or grpc.aio."""
    secure = _credentials()
    if secure is None:
        return kind.insecure_channel(address.target, options=OPTIONS)
    return kind.secure_channel(address.target, secure, options=OPTIONS)


def _unreachable(address: Address) -> ServiceError:
    return ServiceError(
        f"{address.target} is out of reach from {ray.util.get_node_ip_address()} although Ray says that it lives; ports between the "
        "nodes of a run have to be open"
    )
