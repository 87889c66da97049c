"""What all parts share: configs, services of one process, and units shared out over two processes."""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track

from openmaia.assembly import exemplars, investigations
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.selection import select
from openmaia.core.services import (
    GeneratedImage,
    Generation,
    Generator,
    LayerProbe,
    Probe,
    Services,
    Target,
    UnitActivation,
)
from openmaia.core.units import TargetInfo, Unit
from tests.conftest import REPOSITORY

CACHE = Path(os.environ.get("OPENMAIA_CACHE", "~/.cache/openmaia")).expanduser()
PROCESSES = 2

T = TypeVar("T")
R = TypeVar("R")


class Remembering:
    """The same generator; what was asked for before is not drawn again: all units see the same screening pictures."""

    def __init__(self, generator: Generator, kept: int = 3000):
        self._generator, self._kept = generator, kept
        self._drawn: OrderedDict[Generation, GeneratedImage] = OrderedDict()

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        missing = [request for request in dict.fromkeys(requests) if request not in self._drawn]
        self._drawn.update(zip(missing, self._generator.generate(missing), strict=True))
        found = [self._drawn[request] for request in requests]
        while len(self._drawn) > self._kept:
            self._drawn.popitem(last=False)
        return found


class Together:
    """The same target; a picture that is new is put to all units of interest at once, which takes one forward pass. It is
    then known to those that see it later: screenings and searches show all units the same pictures."""

    def __init__(self, target: Target, units: Sequence[Unit], kept: int = 1200):
        self._target, self._units, self._kept = target, units, kept
        self._known: OrderedDict[str, dict[Unit, UnitActivation]] = OrderedDict()

    def info(self) -> TargetInfo:
        return self._target.info()

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        return [self._answer(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return self._target.respond(probes)

    def _answer(self, probe: Probe) -> UnitActivation:
        key = probe.image.digest
        if probe.unit not in self._known.get(key, {}):
            units = list(dict.fromkeys([probe.unit, *self._units]))
            answers = self._target.probe([Probe(unit=unit, image=probe.image) for unit in units])
            self._known[key] = dict(zip(units, answers, strict=True))
            if len(self._known) > self._kept:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key][probe.unit]


@cache
def config(name: str, overrides: tuple[str, ...] = ()) -> Config:
    folder = CACHE / "science"
    return load(
        [str(REPOSITORY / f"configs/{name}.yaml"), f"paths.cache={CACHE}", f"paths.exemplars={folder}", *overrides]
    )


def ready(settings: Config, layers: Sequence[str]) -> None:
    """Exemplars that later calls only read."""
    exemplars.make(settings, layers)


@cache
def services(name: str, overrides: tuple[str, ...] = ()) -> Services:
    """Of this process; built once. Units of interest are those that the config names."""
    settings = config(name, overrides)
    found = investigations.services(settings, exemplars.make(settings, []))
    units = select(settings.units, found.target.info()).units
    return replace(
        found,
        target=found.target if settings.target.kind == "closed_form" else Together(found.target, units),
        generator=Remembering(found.generator),
    )


def shared_out(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """In processes of their own, one item at a time; in order."""
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        done = pool.map(work, items)
        return list(track(done, work.__name__, total=len(items), console=Console(stderr=True)))


def few(smoke: bool) -> tuple[str, ...]:
    """Overrides that keep a smoke test short."""
    return ("pictures.limit=40",) if smoke else ()
