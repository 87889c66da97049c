"""Repeats requests to a service while its server is unavailable, so that an outage only delays investigations."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from openmaia.core.errors import ServiceUnavailable
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Backbone, Edit, Editor, GeneratedImage, Generation, Generator

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")

_PAUSE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientBackbone:
    """Repeats a call while the backbone is unavailable, for at most `minutes`. The time counts towards
    `limits.wall_minutes`, not towards `limits.minutes`.
    """

    backbone: Backbone
    minutes: float
    pause: float = _PAUSE
    """Seconds between two attempts."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Returns one reply for each chat. Raises ServiceUnavailable after `minutes`, and any other error at once."""
        return _repeated(self.backbone.reply, chats, self.minutes, self.pause)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientGenerator:
    """As `PatientBackbone`, for a generator."""

    generator: Generator
    minutes: float
    pause: float = _PAUSE

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        """Returns an image for each request."""
        return _repeated(self.generator.generate, requests, self.minutes, self.pause)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientEditor:
    """As `PatientBackbone`, for an editor."""

    editor: Editor
    minutes: float
    pause: float = _PAUSE

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """Returns an image for each request."""
        return _repeated(self.editor.edit, requests, self.minutes, self.pause)


def _repeated(
    call: Callable[[Sequence[RequestT]], list[ResultT]], requests: Sequence[RequestT], minutes: float, pause: float
) -> list[ResultT]:
    until, answers, left = time.monotonic() + minutes * 60, dict[int, ResultT](), list(range(len(requests)))
    while True:
        try:
            answers |= zip(left, call([requests[number] for number in left]), strict=True)
            return [answers[number] for number in range(len(requests))]
        except ServiceUnavailable as error:
            answers |= {left[number]: answer for number, answer in error.answers.items()}
            left = [number for number in left if number not in answers]
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
