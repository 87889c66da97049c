"""The OpenAI backbone and vLLM's own server, which serves a tiny Gemma 3 of random weights."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, assistant, system, user
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.tiny.gemma import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM"),
]

CONTEXT = 2048
STARTING = 240
STOPPING = 60


@dataclass
class Serving:
    process: subprocess.Popen[bytes]
    url: str
    log: Path


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("server")
    build(folder / "model")
    started = start(folder)
    try:
        wait_for(started)
        yield started
    finally:
        # Its session is the server's own: this ends nobody else's processes.
        for process in session(started.process.pid):
            os.kill(process, 9)
        started.process.wait(STOPPING)


def start(folder: Path) -> Serving:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = f"--served-model-name tiny --host 127.0.0.1 --port {port} --max-model-len {CONTEXT} --max-num-seqs 8"
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model")]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments.split(), "--enforce-eager", "--enable-prompt-tokens-details"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Serving(process, f"http://127.0.0.1:{port}", log)


def wait_for(serving: Serving) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end and serving.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{serving.url}/health", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.5)
    pytest.fail(f"vLLM's server did not come up:\n{serving.log.read_text()[-5000:]}")


def session(leader: int) -> list[int]:
    """The processes of the session that `leader` opened."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields and fields[3] == str(leader) and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def backbone(serving: Serving, **settings: object) -> OpenAiBackbone:
    given = {"context_tokens": CONTEXT, "temperature": 1.0, "timeout": 120.0, "tries": 2, **settings}
    return OpenAiBackbone(OpenAiConfig(kind="openai", **{"model": "tiny", "base_url": f"{serving.url}/v1", **given}))


def image(number: int) -> EncodedImage:
    return EncodedImage.of(np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8))


def chat(number: int) -> Chat:
    """A second turn as the loop writes it, with what strict templates refuse: two messages of one role."""
    messages = (
        system("You experiment."),
        user("Your task."),
        assistant("I show it an image."),
        user("Here it is:", image(number), "and another:", image(number + 100)),
        user("What do you see?"),
    )
    return Chat(conversation=f"c{number}", messages=messages, seed=number, max_tokens=24)


def test_server_replies_depend_on_the_seed_alone(serving: Serving):
    asked = backbone(serving)
    chats = [chat(number) for number in range(8)]
    first, second = asked.reply(chats), asked.reply(chats)
    assert [reply.text for reply in first] == [reply.text for reply in second]
    assert len({reply.text for reply in first}) == 8
    others = asked.reply([replace(one, seed=one.seed + 1000) for one in chats])
    assert all(a.text != b.text for a, b in zip(first, others, strict=True))


def test_server_reports_cached_tokens(serving: Serving):
    asked = backbone(serving)
    long = Chat(conversation="c", messages=(user("word " * 60, image(1)),), seed=1, max_tokens=8)
    asked.reply([long])
    reply = asked.reply([long])[0]
    assert reply.prompt_tokens > 300 and 0 < reply.generated_tokens <= 8
    assert 200 < reply.cached_tokens < reply.prompt_tokens


def test_server_overflow_shortens_the_conversation(serving: Serving):
    """The config claims more than the server has."""
    turns = [message for n in range(6) for message in (assistant(f"reply {n}"), user(f"output {n} " + "x" * 350))]
    long = Chat(conversation="c", messages=(system("You experiment."), user("Task."), *turns), seed=1, max_tokens=16)
    reply = backbone(serving, context_tokens=32768).reply([long])[0]
    assert "experiment outputs" in reply.left_out
    assert reply.prompt_tokens <= CONTEXT - 16
    hopeless = replace(long, messages=(system("You experiment."), user("x" * 5000)))
    with pytest.raises(ServiceError, match="backbone.context_tokens=32768"):
        backbone(serving, context_tokens=32768).reply([hopeless])


def test_wrong_model_and_address_are_reported(serving: Serving):
    with pytest.raises(UsageError, match="backbone.model='huge'"):
        backbone(serving, model="huge").reply([chat(0)])
    with pytest.raises(UsageError, match="backbone.base_url="):
        backbone(serving, base_url=serving.url).reply([chat(0)])


def test_stopped_server_leaves_no_process(serving: Serving):
    """The last test of this file: what comes after it has no server."""
    serving.process.terminate()
    serving.process.wait(STOPPING)
    end = time.monotonic() + STOPPING
    while session(serving.process.pid) and time.monotonic() < end:
        time.sleep(0.2)
    assert session(serving.process.pid) == []
    with pytest.raises(ServiceError, match="backbone.base_url="):
        backbone(serving).reply([chat(0)])
