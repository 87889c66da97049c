"""Generates a small data set in the folder layout of Spawrious.

Where a generator cuts up dataset images, they are of the test split, which agents never see.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from openmaia.config.schema import Config
from openmaia.config.studies import SpuriousConfig
from openmaia.core.components import identity
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.services import GeneratedImage, Generation, Generator
from openmaia.recipes.spurious import layout
from openmaia.runs.files import Files

_AT_ONCE = 32


def make_prompt(label: str, location: str) -> str:
    """Returns the prompt for a class in a place, such as "a corgi on snow"."""
    return f"{'an' if label[0] in 'aeiou' else 'a'} {label} on {location}"


def folder(config: Config) -> Path:
    """Returns the folder of the generated data set in the cache, named by a hash of all settings that determine the
    images (not of package versions).
    """
    kinds = (identity(config.generator), identity(config.pictures), config.spurious.classes)
    made_from = repr((kinds, sorted(layout.count_wanted(config.spurious).items())))
    name = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    return user_path(config.paths.cache) / "spurious" / "drawn" / name


def draw(files: Files, settings: SpuriousConfig, generator: Generator, progress: Callable[[int, int], None]) -> None:
    """Generates the images that do not exist yet. The file name of an image is its seed.

    Args:
        progress: Called after each batch with the number of existing images and the total.

    Raises:
        UsageError: The settings are invalid, or the generator cannot draw a class or a place.
    """
    layout.check(settings)
    requests = [
        (cell, _request(cell, number))
        for cell, count in sorted(layout.count_wanted(settings).items())
        for number in range(count)
    ]
    existing = set(files.names(layout.ROOT))
    missing = [(cell, request) for cell, request in requests if _name(cell, request) not in existing]
    done = len(requests) - len(missing)
    for start in range(0, len(missing), _AT_ONCE):
        part = missing[start : start + _AT_ONCE]
        for (cell, request), made in zip(part, generator.generate([request for _, request in part]), strict=True):
            _require_complete(cell, request, made)
            files.write(_name(cell, request), made.image.png)
        done += len(part)
        progress(done, len(requests))


def _request(cell: layout.DataCell, number: int) -> Generation:
    # Agents cannot request the same image: theirs come from the other split and from other seeds.
    key = hashlib.sha256(f"spurious data set {cell.folder} {number}".encode()).digest()
    return Generation(prompt=make_prompt(cell.label, cell.location), seed=int.from_bytes(key[:8]) >> 1, split="test")


def _name(cell: layout.DataCell, request: Generation) -> str:
    return f"{cell.folder}/{request.seed:016x}.png"


def _require_complete(cell: layout.DataCell, request: Generation, made: GeneratedImage) -> None:
    if made.missing_terms:
        raise UsageError(
            f"spurious.folder is empty, and the generator cannot draw {', '.join(made.missing_terms)} of {request.prompt!r} "
            f"({cell.folder}); give classes and places that it knows, or the folder of a data set"
        )
