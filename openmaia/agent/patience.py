"""Repeats calls to a backbone while its server is unavailable, so that an outage only delays investigations."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.core.errors import ServiceUnavailable
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Backbone


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientBackbone:
    """Wraps a backbone, the model that plays the agent, and repeats a call while it is unavailable.

    The waiting time counts towards the config key `limits.wall_minutes`, but not towards `limits.minutes`, which limits
    the time that services and experiments take.
    """

    backbone: Backbone
    minutes: float
    """Longest time in minutes for which a call is repeated."""
    pause: float = 5.0
    """Time in seconds between two attempts."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Returns one reply for each chat. Repeats the call while the backbone is unavailable.

        Raises:
            ServiceUnavailable: If the backbone is unavailable for longer than `minutes`.
            ServiceError: If the backbone failed otherwise.
        """
        until = time.monotonic() + self.minutes * 60
        while True:
            try:
                return self.backbone.reply(chats)
            except ServiceUnavailable:
                if time.monotonic() + self.pause > until:
                    raise
            time.sleep(self.pause)
