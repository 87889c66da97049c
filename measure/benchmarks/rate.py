"""How much of the requests that a server allows are used, and how many are refused.

A server allows 60 requests a minute: a bucket that gets one token a second. 24 conversations ask it through one client for
`minutes`, each again as soon as it has its answer. Three servers: one says in seconds when it takes the next request, one by
a date, one does not say. Each is asked `TIMES` times at once, by a client and from a bucket of its own: of 60 requests, one more
or less is 0.017. The share is the mean, and `refused` the mean number.

The other rows are ten minutes by a clock that is moved by hand: servers that count in other ways or limit how many requests
they answer at once, say when or do not, and answer in 0.2, 2 and 20 s. Each share is the smallest over these, and `refused` the
largest number. Servers with places do not answer in 0.2 s there: they say "in a second", and are obeyed.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import fmean

from openmaia.agent.patience import PatientBackbone
from openmaia.core.messages import Chat, user
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.misbehaving import misbehaving
from tests.helpers.rationing import Ration
from tests.helpers.throttled import WAY, Allowance, Bucket, Sliding, Slots, Window, play

CONVERSATIONS = 24
SECONDS = 600
TIMES = 5

LATENCIES = (0.2, 2.0, 20.0)
SERVERS: Mapping[str, tuple[Callable[[], Allowance], int]] = {
    "one_token": (lambda: Bucket(1), SECONDS + 1),
    "ten_tokens": (lambda: Bucket(1, holds=10), SECONDS + 10),
    "sixty_tokens": (lambda: Bucket(1, holds=60), SECONDS + 60),
    "by_the_minute": (lambda: Window(60), SECONDS),
    "in_any_minute": (lambda: Sliding(60), SECONDS),
    "token_in_ten_seconds": (lambda: Bucket(0.1), SECONDS // 10 + 1),
}
"""How each counts, and how many requests it allows."""
PLACES = {"one_place": 1, "two_places": 2, "eight_places": 8}


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


def by_hand(made: Callable[[], Allowance], allowed: Mapping[float, float]) -> tuple[float, int]:
    """Returns the smallest share that is used, and the largest number of refusals. `allowed` by latency."""
    played = {
        (latency, says): play(made(), SECONDS, clients=32, latency=latency, says=says)
        for latency in allowed
        for says in (False, True)
    }
    share = min(each.answered / allowed[latency] for (latency, _), each in played.items())
    return share, max(each.refused for each in played.values())


def measure(smoke: bool) -> dict[str, object]:
    logging.disable(logging.WARNING)
    minutes = 0.1 if smoke else 1.0
    found: dict[str, object] = {"minutes": minutes, "conversations": CONVERSATIONS}
    for name, says in (("seconds", "seconds"), ("date", "date"), ("unsaid", "")):
        with ThreadPoolExecutor(TIMES) as threads:
            each = list(threads.map(lambda _, says=says: used(says, minutes * 60), range(TIMES)))
        found |= {f"{name}_used_share": fmean(share for share, _ in each)}
        found |= {f"{name}_used_least": min(share for share, _ in each)}
        found |= {f"{name}_refused": fmean(refused for _, refused in each)}
    by_name: dict[str, tuple[Callable[[], Allowance], Mapping[float, float]]] = {
        name: (made, dict.fromkeys(LATENCIES, allowed)) for name, (made, allowed) in SERVERS.items()
    }
    for name, places in PLACES.items():
        by_name[name] = partial(Slots, places), {s: places * SECONDS / (s + 2 * WAY) for s in (2.0, 20.0)}
    for name, (made, allowed) in by_name.items():
        share, refused = by_hand(made, allowed)
        found |= {f"{name}_used_share": share, f"{name}_refused": refused}
    return found
