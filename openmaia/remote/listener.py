"""What a process of a run answers to others over gRPC; `wire` asks.

A request is opened only where it is sealed with the listener's key, which nobody learns but through Ray, and which never
travels here. Where Ray encrypts (RAY_USE_TLS), so does this, with the same files.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import ray
from ray._common.network_utils import build_address  # pyright: ignore[reportAttributeAccessIssue]
from ray._common.tls_utils import add_port_to_grpc_server

from openmaia.errors import OpenMaiaError
from openmaia.remote.failures import plain
from openmaia.remote.seal import MAC, Forged, Seal

SERVICE = "/openmaia/"
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Between nodes there is no proxy, whatever http_proxy says; a port is one process's.
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    # A host that was cut off answers nothing and closes nothing: within half a minute its calls fail.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Who found nobody tries again soon; gRPC's own pause grows to two minutes.
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
"""Of both sides."""


@dataclass(frozen=True, slots=True)
class Address:
    """target: host:port. seal: of what is sent there and back."""

    target: str
    seal: Seal


async def listen(methods: Mapping[str, Callable[..., Awaitable[Any]]]) -> Address:
    """Answers in the running event loop until its end."""
    server = grpc.aio.server(options=OPTIONS)
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
    server = grpc.server(ThreadPoolExecutor(threads), options=OPTIONS)
    address = _open(server, methods, _answered)
    server.start()
    _held.append(server)
    return address


_held: list[Any] = []
"""Listeners, which would end if nothing held them."""


class _Asked:
    """A request as its listener sees it. The answer belongs to it and to no other."""

    def __init__(self, seal: Seal, name: str, message: bytes):
        self._seal, self._name, self._message = seal, name, message

    def arguments(self) -> tuple[Any, ...]:
        """Raises Forged."""
        return self._seal.open(self._message, self._name.encode())

    def returned(self, value: Any) -> bytes:
        return self._seal.close((True, value), self._message[:MAC])

    def raised(self, error: BaseException) -> bytes:
        cause = error if isinstance(error, OpenMaiaError) else None
        return self._seal.close((False, (cause, plain(error))), self._message[:MAC])


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
        except BaseException as error:  # the boundary: whatever it is, SystemExit too, the caller hears of it
            return asked.raised(error)

    return answer


def _open(server: Any, methods: Mapping[str, Callable[..., Any]], answering: Callable[..., Any]) -> Address:
    seal = Seal()
    handlers = {name: grpc.unary_unary_rpc_method_handler(answering(seal, name, f)) for name, f in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.strip("/"), handlers),))
    host = ray.util.get_node_ip_address()
    port = add_port_to_grpc_server(server, build_address(host, 0))
    return Address(build_address(host, port), seal)
