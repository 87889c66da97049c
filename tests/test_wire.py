"""What processes ask each other directly: of real actors, and of listeners in this process."""

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import ray

from openmaia.errors import ServiceError, UsageError
from openmaia.remote import wire as module
from openmaia.remote.wire import Address, Connection, Gone, Raised, Wire, listen, listen_in_threads


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


class Opened:
    """A pickle that leaves a trace where it is opened."""

    def __init__(self, trace: Path):
        self._trace = trace

    def __reduce__(self):
        return Path.touch, (self._trace,)


@pytest.mark.parametrize("token", ["", "0" * 64, "ä"])
def test_nothing_is_opened_for_who_does_not_show_the_token(
    listening: Callable[..., Address], tmp_path: Path, token: str
):
    address = listening(double=lambda number: 2 * number)
    trace = tmp_path / "opened"
    with grpc.insecure_channel(address.target) as channel:
        shown = (("openmaia-token", token.encode() if token == "ä" else token),) if token else ()
        with pytest.raises((grpc.RpcError, ValueError, TypeError)):
            channel.unary_unary("/openmaia/double")(pickle.dumps((Opened(trace),)), metadata=shown, timeout=20)
    assert not trace.exists()
    assert asked(address, "double", 3) == 6


def test_the_token_is_in_no_text(listening: Callable[..., Address]):
    address = listening()
    assert address.token not in repr(address) + str(address)


def test_a_listener_that_dies_meanwhile_is_gone():
    code = (
        "import os, signal\n"
        "from openmaia.remote.wire import listen_in_threads\n"
        "a = listen_in_threads({'die': lambda: os.kill(os.getpid(), signal.SIGKILL)}, 1)\n"
        "print(a.target, a.token, flush=True)\n"
        "signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = Address(*process.stdout.readline().split())
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

    asyncio.run(give_up())


def test_who_lives_out_of_reach_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{closed.getsockname()[1]}"

        async def reach() -> None:
            await Connection(Address(target, "token")).reach()

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
    monkeypatch.setattr(module, "_OPTIONS", [*module._OPTIONS, ("grpc.ssl_target_name_override", "localhost")])
    address = listen_in_threads({"double": lambda number: 2 * number}, 1)
    assert asked(address, "double", 3) == 6
    monkeypatch.delenv("RAY_USE_TLS")
    with pytest.raises(Gone):
        asked(address, "double", 3)
