"""A small tree in the layout of Spawrious, drawn by a generator out of the half of the pictures that agents never get."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from openmaia.apps.spurious import layout
from openmaia.errors import UsageError
from openmaia.pictures.phrases import article
from openmaia.schema import Config, SpuriousConfig
from openmaia.services import Drawn, Generation, Generator
from openmaia.store.files import Files, safe

AT_ONCE = 32
Progress = Callable[[int, int], None]


def prompt(label: str, location: str) -> str:
    return f"{article(label)} on {location}"


def folder(config: Config) -> Path:
    """Below the cache, by everything that decides which pictures are drawn, except the packages they come from."""
    kinds = (
        config.generator.kind,
        config.generator.size,
        config.generator.diffusion,
        config.pictures,
        config.spurious.classes,
    )
    made_from = repr((kinds, sorted(layout.owed(config.spurious).items())))
    name = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    return Path(config.paths.cache).expanduser() / "spurious" / "drawn" / name


def draw(files: Files, asked: SpuriousConfig, generator: Generator, progress: Progress) -> None:
    """Draws what is not there yet. Every picture's name is the hash of what it was drawn from.

    Raises UsageError for a class or a place that the generator cannot draw.
    """
    layout.check(asked)
    wanted = [
        (cell, request)
        for cell, count in sorted(layout.owed(asked).items())
        for request in (_request(cell, number) for number in range(count))
    ]
    there = set(files.names(layout.ROOT))
    left = [(cell, request) for cell, request in wanted if _name(cell, request) not in there]
    done = len(wanted) - len(left)
    for part in _parts(left):
        for (cell, request), made in zip(part, generator.generate([request for _, request in part]), strict=True):
            _refuse_undrawn(cell, request, made)
            files.write(_name(cell, request), made.picture.png)
        done += len(part)
        progress(done, len(wanted))


def _parts(left: list[tuple[layout.Cell, Generation]]) -> list[list[tuple[layout.Cell, Generation]]]:
    return [left[at : at + AT_ONCE] for at in range(0, len(left), AT_ONCE)]


def _request(cell: layout.Cell, number: int) -> Generation:
    """The half is the one that agents get no picture of; the seed is of a purpose that no agent can ask for."""
    key = hashlib.sha256(f"spurious data set {cell.folder} {number}".encode()).digest()
    return Generation(prompt=prompt(cell.label, cell.location), seed=int.from_bytes(key[:8]) >> 1, half="test")


def _name(cell: layout.Cell, request: Generation) -> str:
    place = f"{layout.ROOT}/{cell.environment}/{safe(cell.location)}/{safe(cell.label)}"
    return f"{place}/{request.seed:016x}.png"


def _refuse_undrawn(cell: layout.Cell, request: Generation, made: Drawn) -> None:
    if made.undrawn:
        raise UsageError(
            f"spurious.folder is empty, and the generator cannot draw {', '.join(made.undrawn)} of {request.prompt!r} "
            f"({cell.folder}); give classes and places that it knows, or the folder of a data set"
        )
