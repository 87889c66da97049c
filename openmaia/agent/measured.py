"""Hosts in this process, each call timed: what pools report of theirs, without a pool."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from openmaia.messages import Chat, Reply
from openmaia.services import (
    Activation,
    Backbone,
    Drawn,
    Edit,
    Editor,
    Generation,
    Generator,
    LayerProbe,
    Ledger,
    Probe,
    Target,
)
from openmaia.units import TargetInfo

Host = TypeVar("Host")
Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Measured(Generic[Host]):
    """gpus: that the host has to itself."""

    host: Host
    ledger: Ledger
    gpus: float

    def _timed(
        self, service: str, call: Callable[[Sequence[Request]], list[Answer]], requests: Sequence[Request]
    ) -> list[Answer]:
        began = time.monotonic()
        answers = call(requests)
        self.ledger.add(service, len(requests), time.monotonic() - began, self.gpus)
        return answers


class MeasuredTarget(_Measured[Target]):
    def info(self) -> TargetInfo:
        return self.host.info()

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return self._timed("target", self.host.probe, probes)

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return self._timed("target", self.host.respond, probes)


class MeasuredGenerator(_Measured[Generator]):
    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        return self._timed("generator", self.host.generate, requests)


class MeasuredEditor(_Measured[Editor]):
    def edit(self, requests: Sequence[Edit]) -> list[Drawn]:
        return self._timed("editor", self.host.edit, requests)


class MeasuredBackbone(_Measured[Backbone]):
    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return self._timed("backbone", self.host.reply, chats)
