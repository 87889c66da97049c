"""Processes that ask the same server share what it allows."""

import os
import time
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError

from openmaia.core.messages import Chat, user
from openmaia.distributed.gates import use_shared_gates
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.misbehaving import misbehaving
from tests.helpers.rationing import Ration
from tests.helpers.sleeping import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


class Asker:
    def __init__(self, url: str):
        use_shared_gates()
        self.asked = OpenAiBackbone(OpenAiConfig(kind="openai", model="m", base_url=url))

    def ask(self) -> str:
        return self.asked.reply([Chat(conversation="", messages=(user("?"),), seed=1, max_tokens=50)])[0].text

    def die(self) -> None:
        os._exit(1)


def test_a_refusal_of_one_process_holds_up_the_others_and_its_death_does_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    remote: Any = ray.remote(Asker)
    with misbehaving() as server:
        ration = Ration(per_second=100, holds=100)
        server.otherwise = ration.act
        first, second = (remote.options(num_cpus=0).remote(f"{server.base}/v1") for _ in range(2))
        ray.get([each.ask.remote() for each in (first, second)], timeout=240)  # until both have started
        ration.closed_until = time.monotonic() + 8
        early = first.ask.remote()
        wait_until(lambda: ration.refused > 0)
        assert ray.get([early, second.ask.remote()]) == ["yes", "yes"]
        assert ration.refused <= 2, "a date or whole seconds may be early by one request"
        assert min(ration.answered[2:]) >= ration.closed_until
        first.die.remote()
        with pytest.raises(ActorDiedError):
            ray.get(first.ask.remote())
        assert ray.get(second.ask.remote()) == "yes"
