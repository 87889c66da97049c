"""Requests and answers between the processes of a run, over gRPC: a call takes a third of the time that Ray's take.

Ray starts the processes, finds them, and says when one is gone; only what they ask each other goes directly. What a
listener is asked is a pickle, which can do anything: it is opened only where the listener's token is shown, which nobody
learns but through Ray. Where Ray encrypts (RAY_USE_TLS), so does this, with the same files.
"""

import asyncio
import hmac
import os
import pickle
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

# The sandbox forks before it loads anything of the agent's, and asks nobody.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import ray
from ray._common.tls_utils import add_port_to_grpc_server, load_certs_from_env

from openmaia.errors import OpenMaiaError, ServiceError

PATIENCE = 60.0
"""Seconds for which a listener that Ray says is alive may be out of reach."""

_PROTOCOL = 5
_TOKEN = "openmaia-token"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A host that was cut off answers nothing and closes nothing: within half a minute its calls fail.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Who found nobody tries again soon; gRPC's own pause grows to two minutes.
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class Gone(Exception):
    """Nobody answers there any more."""


class Raised(Exception):
    """What was called raised. cause: the error, where it is one of ours. The text is its last line."""

    def __init__(self, cause: OpenMaiaError | None, said: str):
        super().__init__(said)
        self.cause, self.said = cause, said


@dataclass(frozen=True, slots=True)
class Address:
    """target: host:port. token: what to show there."""

    target: str
    token: str = field(repr=False)


async def listen(methods: Mapping[str, Callable[..., Awaitable[Any]]]) -> Address:
    """Answers in the running event loop, as long as the process lives."""
    server = grpc.aio.server(options=_OPTIONS)
    address = _open(server, {name: _awaited(f) for name, f in methods.items()})
    await server.start()
    return address


def listen_in_threads(methods: Mapping[str, Callable[..., Any]], threads: int) -> Address:
    """Answers so many calls at once, each in a thread."""
    server = grpc.server(ThreadPoolExecutor(threads), options=_OPTIONS)
    address = _open(server, {name: _answered(f) for name, f in methods.items()})
    server.start()
    return address


class Connection:
    """To one listener, from an event loop."""

    def __init__(self, address: Address):
        secure = _credentials()
        if secure is None:
            self._channel = grpc.aio.insecure_channel(address.target, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address.target, secure, options=_OPTIONS)
        self._target, self._shown = address.target, ((_TOKEN, address.token),)
        self._is_closed = False

    async def reach(self) -> None:
        """Raises ServiceError where it cannot be reached from here."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), PATIENCE)
        except TimeoutError:
            raise _unreachable(self._target) from None

    async def call(self, method: str, *arguments: Any) -> Any:
        """Raises Raised, and Gone where the listener is, or ends meanwhile."""
        ask = self._channel.unary_unary(f"/openmaia/{method}")
        try:
            answer = await ask(pickle.dumps(arguments, _PROTOCOL), metadata=self._shown)
        except grpc.aio.AioRpcError as error:
            raise Gone(f"{error.code().name}: {error.details()}") from None
        except asyncio.CancelledError:
            if self._is_closed:
                raise Gone("it was given up") from None
            raise
        return _opened(answer)

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
        packed = pickle.dumps(arguments, _PROTOCOL)
        since: dict[Address, float] = {}
        while True:
            address, channel = self._connected()
            try:
                ask = channel.unary_unary(f"/openmaia/{method}")
                return _opened(ask(packed, metadata=((_TOKEN, address.token),)))
            except grpc.RpcError:
                self._forget(address)
                if time.monotonic() > since.setdefault(address, time.monotonic()) + PATIENCE:
                    raise _unreachable(address.target) from None
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


def _opened(answer: bytes) -> Any:
    went_well, content = pickle.loads(answer)
    if went_well:
        return content
    raise Raised(*content)


def _raised(error: Exception) -> bytes:
    lines = str(error).strip().splitlines() or ["no message"]
    cause = error if isinstance(error, OpenMaiaError) else None
    return pickle.dumps((False, (cause, f"{type(error).__name__}: {lines[-1]}")), _PROTOCOL)


def _awaited(method: Callable[..., Awaitable[Any]]) -> Any:
    async def answer(packed: bytes, context: Any) -> bytes:
        try:
            return pickle.dumps((True, await method(*pickle.loads(packed))), _PROTOCOL)
        except Exception as error:  # the boundary: whatever it is, the caller hears of it
            return _raised(error)

    return answer


def _answered(method: Callable[..., Any]) -> Any:
    def answer(packed: bytes, context: Any) -> bytes:
        try:
            return pickle.dumps((True, method(*pickle.loads(packed))), _PROTOCOL)
        except Exception as error:  # the boundary: whatever it is, the caller hears of it
            return _raised(error)

    return answer


class _Door(grpc.GenericRpcHandler):
    """Lets in who shows the token; nothing of others' requests is opened."""

    def __init__(self, answers: Mapping[str, Any], token: str):
        self._token = token
        self._known = {f"/openmaia/{name}": grpc.unary_unary_rpc_method_handler(f) for name, f in answers.items()}

    def service(self, handler_call_details: Any) -> Any:
        """None, which gRPC answers as an unknown method, for strangers."""
        shown = dict(handler_call_details.invocation_metadata).get(_TOKEN, "")
        if not hmac.compare_digest(str(shown).encode(), self._token.encode()):
            return None
        return self._known.get(handler_call_details.method)


_servers: list[Any] = []
"""They end when nothing holds them any more."""


def _open(server: Any, answers: Mapping[str, Any]) -> Address:
    token = secrets.token_hex(32)
    server.add_generic_rpc_handlers((_Door(answers, token),))
    host = ray.util.get_node_ip_address()
    port = add_port_to_grpc_server(server, f"{host}:0")
    _servers.append(server)
    return Address(f"{host}:{port}", token)


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


def _unreachable(target: str) -> ServiceError:
    return ServiceError(
        f"{target} is out of reach from {ray.util.get_node_ip_address()} although Ray says that it lives; ports between the "
        "nodes of a run have to be open"
    )
