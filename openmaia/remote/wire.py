"""Requests and answers between the processes of a run, over gRPC: a call takes a third of the time that Ray's take.

Ray starts the processes, finds them, and says when one is gone; only what they ask each other goes directly. Both sides
open only what is sealed with the listener's key, which nobody learns but through Ray, and which never travels here. Where
Ray encrypts (RAY_USE_TLS), so does this, with the same files.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import ray
from ray._common.network_utils import build_address  # pyright: ignore[reportAttributeAccessIssue]
from ray._common.tls_utils import add_port_to_grpc_server, load_certs_from_env

from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.remote.seal import MAC, Forged, Seal

PATIENCE = 60.0
"""Seconds for which a listener that Ray says is alive may be out of reach."""

_SERVICE = "/openmaia/"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Between nodes there is no proxy, whatever http_proxy says; a port is one process's.
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    # A host that was cut off answers nothing and closes nothing: within half a minute its calls fail.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Who found nobody tries again soon; gRPC's own pause grows to two minutes.
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class Gone(Exception):
    """Nobody answers there any more, or not who should."""


class Raised(Exception):
    """What was called raised. cause: the error, where it is one of ours. The text is its last line."""

    def __init__(self, cause: OpenMaiaError | None, said: str):
        super().__init__(said)
        self.cause, self.said = cause, said


@dataclass(frozen=True, slots=True)
class Address:
    """target: host:port. seal: of what is sent there and back."""

    target: str
    seal: Seal


async def listen(methods: Mapping[str, Callable[..., Awaitable[Any]]]) -> Address:
    """Answers in the running event loop until its end."""
    server = grpc.aio.server(options=_OPTIONS)
    address = _open(server, methods, _awaited)
    await server.start()
    _held.append(asyncio.create_task(_until_the_end(server)))
    return address


async def _until_the_end(server: Any) -> None:
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(None)


def listen_in_threads(methods: Mapping[str, Callable[..., Any]], threads: int) -> Address:
    """Answers so many calls at once, each in a thread, as long as the process lives."""
    server = grpc.server(ThreadPoolExecutor(threads), options=_OPTIONS)
    address = _open(server, methods, _answered)
    server.start()
    _held.append(server)
    return address


_held: list[Any] = []
"""Listeners, which would end if nothing held them."""


class Connection:
    """To one listener, from an event loop."""

    def __init__(self, address: Address):
        secure = _credentials()
        if secure is None:
            self._channel = grpc.aio.insecure_channel(address.target, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address.target, secure, options=_OPTIONS)
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
        request = _request(self._address, method, arguments)
        try:
            answer = await self._channel.unary_unary(_SERVICE + method)(request)
        except grpc.aio.AioRpcError as error:
            raise Gone(f"{error.code().name}: {error.details()}") from None
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
        """Raises Raised, Ray's exceptions where the actor is dead for good, and ServiceError where it lives out of reach."""
        since: dict[Address, float] = {}
        while True:
            address, channel = self._connected()
            request = _request(address, method, arguments)
            try:
                return _result(address, request, channel.unary_unary(_SERVICE + method)(request))
            except (grpc.RpcError, Gone):
                self._forget(address)
                if time.monotonic() > since.setdefault(address, time.monotonic()) + PATIENCE:
                    raise _unreachable(address) from None
                time.sleep(0.1)

    def _connected(self) -> tuple[Address, Any]:
        with self._lock:
            if self._known is None:
                address: Address = ray.get(self._actor.address.remote())
                self._known = address, _channel(address)
            return self._known

    def _forget(self, address: Address) -> None:
        with self._lock:
            if self._known is not None and self._known[0] == address:
                self._known = None


_wires: dict[Any, Wire] = {}
_lock = threading.Lock()


def wire(actor: Any) -> Wire:
    """Threads share a connection."""
    with _lock:
        return _wires.setdefault(actor._actor_id, Wire(actor))


class _Asked:
    """A request as its listener sees it. The answer belongs to it and to no other."""

    def __init__(self, seal: Seal, name: str, message: bytes):
        self._seal, self._name, self._message = seal, name, message

    def arguments(self) -> tuple[Any, ...]:
        """Raises Forged."""
        return self._seal.open(self._message, self._name.encode())

    def returned(self, value: Any) -> bytes:
        return self._seal.close((True, value), self._message[:MAC])

    def raised(self, error: Exception) -> bytes:
        lines = str(error).strip().splitlines() or ["no message"]
        cause = error if isinstance(error, OpenMaiaError) else None
        return self._seal.close((False, (cause, f"{type(error).__name__}: {lines[-1]}")), self._message[:MAC])


def _awaited(seal: Seal, name: str, method: Callable[..., Awaitable[Any]]) -> Any:
    async def answer(message: bytes, context: Any) -> bytes:
        asked = _Asked(seal, name, message)
        try:
            return asked.returned(await method(*asked.arguments()))
        except Forged as error:
            return await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        except Exception as error:  # the boundary: whatever it is, the caller hears of it
            return asked.raised(error)

    return answer


def _answered(seal: Seal, name: str, method: Callable[..., Any]) -> Any:
    def answer(message: bytes, context: Any) -> bytes:
        asked = _Asked(seal, name, message)
        try:
            return asked.returned(method(*asked.arguments()))
        except Forged as error:
            return context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        except Exception as error:  # the boundary: whatever it is, the caller hears of it
            return asked.raised(error)

    return answer


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


def _open(server: Any, methods: Mapping[str, Callable[..., Any]], answering: Callable[..., Any]) -> Address:
    seal = Seal()
    handlers = {name: grpc.unary_unary_rpc_method_handler(answering(seal, name, f)) for name, f in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.strip("/"), handlers),))
    host = ray.util.get_node_ip_address()
    port = add_port_to_grpc_server(server, build_address(host, 0))
    return Address(build_address(host, port), seal)


def _credentials() -> Any:
    """None where Ray does not encrypt either."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    chain, key, authority = load_certs_from_env()
    return grpc.ssl_channel_credentials(root_certificates=authority, private_key=key, certificate_chain=chain)


def _channel(address: Address) -> Any:
    secure = _credentials()
    if secure is None:
        return grpc.insecure_channel(address.target, options=_OPTIONS)
    return grpc.secure_channel(address.target, secure, options=_OPTIONS)


def _unreachable(address: Address) -> ServiceError:
    return ServiceError(
        f"{address.target} is out of reach from {ray.util.get_node_ip_address()} although Ray says that it lives; ports between the "
        "nodes of a run have to be open"
    )
