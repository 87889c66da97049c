"""How much of the requests that a server allows are used, and how many are refused, in `minutes` of conversations.

A server allows 60 requests a minute: a bucket that gets one token a second. 24 conversations ask it through one client, each
again as soon as it has its answer. Three servers: one says in seconds when it takes the next request, one by a date, one
does not say.
"""

import logging
import time
from concurrent.futures import ThreadPoolExecutor

from openmaia.agent.patience import PatientBackbone
from openmaia.core.messages import Chat, user
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.misbehaving import misbehaving
from tests.helpers.rationing import Ration

CONVERSATIONS = 24


def used(says: str, seconds: float) -> tuple[float, int]:
    """Returns the share of allowed requests that were answered, and the number of refusals."""
    with misbehaving() as server:
        ration = Ration(per_second=1.0, says=says, takes=0.3)
        server.otherwise = ration.act
        asked = OpenAiBackbone(OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1"))
        patient = PatientBackbone(backbone=asked, minutes=30)
        until = time.monotonic() + seconds

        def converse(number: int) -> None:
            while time.monotonic() < until:
                patient.reply([Chat(conversation=str(number), messages=(user("?"),), seed=1, max_tokens=50)])

        with ThreadPoolExecutor(CONVERSATIONS) as threads:
            list(threads.map(converse, range(CONVERSATIONS)))
        return sum(at < until for at in ration.answered) / seconds, ration.refused


def measure(smoke: bool) -> dict[str, object]:
    logging.disable(logging.WARNING)
    minutes = 0.1 if smoke else 1.0
    found: dict[str, object] = {"minutes": minutes, "conversations": CONVERSATIONS}
    for name, says in (("seconds", "seconds"), ("date", "date"), ("unsaid", "")):
        share, refused = used(says, minutes * 60)
        found |= {f"{name}_used_share": share, f"{name}_refused": refused}
    return found
