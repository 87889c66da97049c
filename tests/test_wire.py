"""What processes ask each other directly: of real actors, and of listeners in this process."""

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import ray

from openmaia.errors import ServiceError, UsageError
from openmaia.remote import wire as module
from openmaia.remote.listener import Address, listen, listen_in_threads
from openmaia.remote.seal import MAC, Seal
from openmaia.remote.wire import Connection, Gone, Raised, Wire


class Answering:
    async def address(self) -> Address:
        return await listen({"double": self.double, "fail": self.fail, "pid": self.pid})

    async def double(self, number: int) -> int:
        return 2 * number

    async def fail(self, ours: bool) -> None:
        raise UsageError("17 is no layer", detail="of many") if ours else KeyError("conv")

    async def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def actor(ray_cluster: None) -> Any:
    settings = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    return ray.remote(Answering).options(**settings).remote()


@pytest.fixture
def listening() -> Callable[..., Address]:
    def make(**methods: Callable[..., Any]) -> Address:
        return listen_in_threads(methods, 2)

    return make


def asked(address: Address, method: str, *arguments: Any) -> Any:
    async def ask() -> Any:
        connection = Connection(address)
        try:
            return await connection.call(method, *arguments)
        finally:
            await connection.close()

    return asyncio.run(ask())


def test_an_answer_is_what_the_method_returned(actor: Any, listening: Callable[..., Address]):
    assert [Wire(actor).call("double", number) for number in range(50)] == [2 * number for number in range(50)]
    assert (
        asked(listening(join=lambda *parts: b"".join(parts)), "join", b"a" * 9_000_000, b"b") == b"a" * 9_000_000 + b"b"
    )


def test_our_own_errors_arrive_whole_and_others_as_their_last_line(actor: Any):
    with pytest.raises(Raised, match="17 is no layer") as ours:
        Wire(actor).call("fail", True)
    assert isinstance(ours.value.cause, UsageError)
    assert (ours.value.cause.message, ours.value.cause.detail) == ("17 is no layer", "of many")
    with pytest.raises(Raised, match="^KeyError: 'conv'$") as others:
        Wire(actor).call("fail", False)
    assert others.value.cause is None


def test_an_actor_that_was_started_anew_is_found(actor: Any):
    wire = Wire(actor)
    before = wire.call("pid")
    os.kill(before, signal.SIGKILL)
    assert wire.call("pid") != before
    assert wire.call("double", 4) == 8


class Broken:
    """A pickle that cannot be opened."""

    def __reduce__(self):
        return fail, ()


def fail() -> None:
    raise ValueError("broken")


class Opened:
    """A pickle that leaves a trace where it is opened."""

    def __init__(self, trace: Path):
        self._trace = trace

    def __reduce__(self):
        return Path.touch, (self._trace,)


def forgeries(trace: Path, seal: Seal) -> dict[str, bytes]:
    packed = pickle.dumps((Opened(trace),))
    return {
        "nothing": b"",
        "no seal": packed,
        "another key": Seal().close((Opened(trace),), b"double"),
        "for another method": seal.close((Opened(trace),), b"triple"),
        "changed on the way": seal.close((Opened(trace), 1), b"double").replace(b"K\x01", b"K\x02"),
        "a seal of something else": seal.close((1,), b"double")[:MAC] + packed,
    }


@pytest.mark.parametrize("kind", forgeries(Path(), Seal()))
@pytest.mark.parametrize("threads", [True, False])
def test_a_listener_opens_only_what_is_sealed(tmp_path: Path, kind: str, threads: bool):
    trace = tmp_path / "opened"

    async def double(number: int) -> int:
        return 2 * number

    async def story() -> None:
        address = listen_in_threads({"double": lambda n: 2 * n}, 1) if threads else await listen({"double": double})
        async with grpc.aio.insecure_channel(address.target) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                await channel.unary_unary("/openmaia/double")(forgeries(trace, address.seal)[kind], timeout=20)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert not trace.exists()
        connection = Connection(address)
        assert await connection.call("double", 3) == 6
        await connection.close()

    asyncio.run(story())


def test_an_answer_is_opened_only_from_who_has_the_key_and_only_to_what_was_asked(tmp_path: Path):
    """A port passes to another user's process when the listener has died."""
    trace = tmp_path / "opened"
    seal = Seal()
    before = seal.close((1,), b"double")
    said = [Seal().close((True, Opened(trace)), before[:MAC]), seal.close((True, Opened(trace)), before[:MAC]), b""]

    class Impostor(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: said[0])

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Impostor(),))
    address = Address(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", seal)
    server.start()
    while said:
        with pytest.raises(Gone, match="not sealed"):
            asked(address, "double", 3)
        del said[0]
    server.stop(None)
    assert not trace.exists()


def test_the_key_is_in_no_text(listening: Callable[..., Address]):
    address = listening()
    assert str(address.seal.key)[2:20] not in repr(address) + str(address)


def test_what_cannot_be_answered_or_opened_is_said_to_the_caller(listening: Callable[..., Address]):
    address = listening(lock=threading.Lock, take=lambda given: given)
    with pytest.raises(Raised, match="cannot pickle '_thread.lock'"):
        asked(address, "lock")
    with pytest.raises(Raised, match="ValueError: broken"):
        asked(address, "take", Broken())


def test_a_method_that_would_end_the_process_is_answered(listening: Callable[..., Address]):
    with pytest.raises(Raised, match="SystemExit: 3"):
        asked(listening(end=lambda: sys.exit(3)), "end")


def test_a_listener_that_dies_meanwhile_is_gone():
    code = (
        "import os, signal\n"
        "from openmaia.remote.listener import listen_in_threads\n"
        "a = listen_in_threads({'die': lambda: os.kill(os.getpid(), signal.SIGKILL)}, 1)\n"
        "print(a.target, a.seal.key.hex(), flush=True)\n"
        "signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        target, key = process.stdout.readline().split()
        address = Address(target, Seal(bytes.fromhex(key)))
        with pytest.raises(Gone):
            asked(address, "die")
        with pytest.raises(Gone):
            asked(address, "die")


def test_what_is_under_way_when_a_connection_is_closed_is_gone():
    async def give_up() -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        connection = Connection(await listen({"never": never}))
        await connection.reach()
        under_way = asyncio.create_task(connection.call("never"))
        await asyncio.sleep(0.2)
        await connection.close()
        with pytest.raises(Gone):
            await under_way
        with pytest.raises(Gone):
            await connection.call("never")

    asyncio.run(give_up())


def test_no_proxy_comes_between(listening: Callable[..., Address], monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert asked(listening(double=lambda number: 2 * number), "double", 3) == 6


def test_who_lives_out_of_reach_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{closed.getsockname()[1]}"

        async def reach() -> None:
            await Connection(Address(target, Seal())).reach()

        with pytest.raises(ServiceError, match=f"{target} is out of reach .* ports between the nodes"):
            asyncio.run(reach())


CERTIFICATES = """
from ray._common.tls_utils import generate_self_signed_tls_certs
certificate, key = generate_self_signed_tls_certs()
open("certificate.pem", "w").write(certificate), open("key.pem", "w").write(key)
"""


def test_where_ray_encrypts_nothing_goes_in_the_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    subprocess.run([sys.executable, "-W", "ignore", "-c", CERTIFICATES], cwd=tmp_path, check=True)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for name, file in {"SERVER_CERT": "certificate", "SERVER_KEY": "key", "CA_CERT": "certificate"}.items():
        monkeypatch.setenv(f"RAY_TLS_{name}", str(tmp_path / f"{file}.pem"))
    monkeypatch.setattr(module, "OPTIONS", [*module.OPTIONS, ("grpc.ssl_target_name_override", "localhost")])
    address = listen_in_threads({"double": lambda number: 2 * number}, 1)
    assert asked(address, "double", 3) == 6
    monkeypatch.delenv("RAY_USE_TLS")
    with pytest.raises(Gone):
        asked(address, "double", 3)
