"""Repeats calls to a service while its server is unavailable, so that an outage only delays investigations."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from openmaia.core.errors import ServiceUnavailable
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Backbone, Edit, Editor, GeneratedImage, Generation, Generator

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")

PAUSE = 5.0
"""Time in seconds between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientBackbone:
    """Wraps a backbone, the model that plays the agent, and repeats a call while it is unavailable.

    The waiting time counts towards the config key `limits.wall_minutes`, but not towards `limits.minutes`, which limits
    the time that services and experiments take.
    """

    backbone: Backbone
    minutes: float
    """Longest time in minutes for which a call is repeated."""
    pause: float = PAUSE
    """Time in seconds between two attempts."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Returns one reply for each chat. Repeats the call while the backbone is unavailable.

        Raises:
            ServiceUnavailable: If the backbone is unavailable for longer than `minutes`.
            ServiceError: If the backbone failed otherwise.
        """
        return _repeated(self.backbone.reply, chats, self.minutes, self.pause)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientGenerator:
    """Wraps a generator, and repeats a call while it is unavailable. The waiting time counts as `PatientBackbone`'s."""

    generator: Generator
    minutes: float
    """Longest time in minutes for which a call is repeated."""
    pause: float = PAUSE
    """Time in seconds between two attempts."""

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        """Returns an image for each request. Repeats the call while the generator is unavailable."""
        return _repeated(self.generator.generate, requests, self.minutes, self.pause)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientEditor:
    """Wraps an editor, and repeats a call while it is unavailable. The waiting time counts as `PatientBackbone`'s."""

    editor: Editor
    minutes: float
    """Longest time in minutes for which a call is repeated."""
    pause: float = PAUSE
    """Time in seconds between two attempts."""

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """Returns an edited image for each request. Repeats the call while the editor is unavailable."""
        return _repeated(self.editor.edit, requests, self.minutes, self.pause)


def _repeated(
    call: Callable[[Sequence[RequestT]], list[ResultT]], requests: Sequence[RequestT], minutes: float, pause: float
) -> list[ResultT]:
    until = time.monotonic() + minutes * 60
    while True:
        try:
            return call(requests)
        except ServiceUnavailable:
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
