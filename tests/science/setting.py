"""What all parts share: configs, services of one process, and units shared out over two processes."""

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from openmaia import build, exemplars
from openmaia.config import load
from openmaia.schema import Config
from openmaia.services import Drawn, Generation, Generator, Services

REPOSITORY = Path(__file__).parent.parent.parent
CACHE = Path(os.environ.get("OPENMAIA_CACHE", "~/.cache/openmaia")).expanduser()
PROCESSES = 2

T = TypeVar("T")
R = TypeVar("R")


class Remembering:
    """The same generator; what was asked for before is not drawn again: all units see the same screening pictures."""

    def __init__(self, generator: Generator, kept: int = 3000):
        self._generator, self._kept = generator, kept
        self._drawn: OrderedDict[Generation, Drawn] = OrderedDict()

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        missing = [request for request in dict.fromkeys(requests) if request not in self._drawn]
        self._drawn.update(zip(missing, self._generator.generate(missing), strict=True))
        found = [self._drawn[request] for request in requests]
        while len(self._drawn) > self._kept:
            self._drawn.popitem(last=False)
        return found


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
def _services(key: str) -> Services:
    name, *overrides = json.loads(key)
    settings = config(name, tuple(overrides))
    found = build.services(settings, exemplars.make(settings, []))
    return Services(
        target=found.target,
        exemplars=found.exemplars,
        generator=Remembering(found.generator),
        editor=found.editor,
        backbone=found.backbone,
    )


def services(name: str, overrides: tuple[str, ...] = ()) -> Services:
    """Of this process; built once."""
    return _services(json.dumps([name, *overrides]))


def shared_out(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """In processes of their own, one item at a time; in order."""
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, items))


def few(smoke: bool) -> tuple[str, ...]:
    """Overrides that keep a smoke test short."""
    return ("pictures.limit=40",) if smoke else ()
