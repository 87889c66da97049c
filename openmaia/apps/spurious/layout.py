"""The layout of Spawrious, <folder>/spawrious224/<environment>/<location>/<class>/, and how its pictures are divided.

In training each class is nearly always in one place (the one-to-one shift), in the test in the place of another class.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from openmaia.errors import UsageError
from openmaia.schema import SpuriousConfig

ROOT = "spawrious224"
ENVIRONMENTS = (0, 1)
SUFFIXES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """Pictures of one class in one place."""

    environment: int
    location: str
    label: str

    @property
    def folder(self) -> str:
        return f"{ROOT}/{self.environment}/{self.location}/{self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """path: relative to the tree. label: index of the class."""

    path: str
    label: int
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """train, validation: unbalanced, as the classifier learns. test: with the places exchanged. pool: equally many of each
    class in each training place, of which balanced validation sets are drawn. No picture is in two of them."""

    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    test: tuple[Example, ...]
    pool: tuple[Example, ...]


def check(asked: SpuriousConfig) -> None:
    """Raises UsageError for settings that describe no one-to-one shift."""
    if len(asked.classes) < 2:
        raise UsageError(f"spurious.classes={asked.classes}: a classifier needs at least two classes")
    places = set(asked.train_locations)
    if len(asked.train_locations) != len(asked.classes) or len(places) != len(asked.classes):
        raise UsageError(
            f"spurious.train_locations={asked.train_locations}: give each of {asked.classes} a place of its own"
        )
    pairs = zip(asked.train_locations, asked.test_locations, strict=False)
    if set(asked.test_locations) != places or any(one == other for one, other in pairs):
        raise UsageError(
            f"spurious.test_locations={asked.test_locations}: expected {asked.train_locations} in an order in which no class "
            "keeps its place"
        )
    if len(asked.shares) != len(ENVIRONMENTS) or not all(0 < share <= 1 for share in asked.shares):
        raise UsageError(
            f"spurious.shares={asked.shares}: expected two shares above 0 and at most 1, one per environment"
        )
    if not 0 < asked.validation < 1:
        raise UsageError(f"spurious.validation={asked.validation} is out of range; give a share between 0 and 1")
    cells = len(asked.classes) ** 2
    for key, value in (("balanced", asked.balanced), ("pool", asked.pool)):
        if value % (2 * cells):
            raise UsageError(
                f"spurious.{key}={value}: it is divided into halves of {cells} equal cells; give a multiple of {2 * cells}"
            )
    if asked.balanced > asked.pool:
        raise UsageError(f"spurious.balanced={asked.balanced} is more than spurious.pool={asked.pool}; lower it")


def owed(asked: SpuriousConfig) -> dict[Cell, int]:
    """How many pictures of each cell are used."""
    wanted = training(asked)
    for cell in _pool_cells(asked):
        wanted[cell] = wanted.get(cell, 0) + _pool(asked)
    for cell in _test(asked):
        wanted[cell] = asked.per_cell
    return {cell: count for cell, count in wanted.items() if count}


def divide(root: Path, asked: SpuriousConfig, seed: int) -> Splits:
    """seed: of the division into training and validation; the rest follows from the names of the files.

    Raises UsageError for a tree that lacks a cell or pictures in it.
    """
    check(asked)
    found = {cell: _listed(root, cell, count) for cell, count in owed(asked).items()}
    index = {label: number for number, label in enumerate(asked.classes)}

    def examples(cell: Cell, paths: Sequence[str]) -> list[Example]:
        return [Example(path=path, label=index[cell.label], location=cell.location) for path in paths]

    learnt = [one for cell, count in training(asked).items() for one in examples(cell, found.get(cell, [])[:count])]
    pool = {cell: found[cell][-_pool(asked) :] for cell in _pool_cells(asked)}
    test = [
        one
        for cell in _test(asked)
        for one in examples(cell, [p for p in found[cell] if p not in set(pool.get(cell, []))])
    ]
    order: list[int] = np.random.default_rng([seed, 1]).permutation(len(learnt)).tolist()
    held = max(round(asked.validation * len(learnt)), 1)
    splits = Splits(
        train=tuple(learnt[at] for at in sorted(order[held:])),
        validation=tuple(learnt[at] for at in sorted(order[:held])),
        test=tuple(test),
        pool=tuple(one for cell, paths in pool.items() for one in examples(cell, paths)),
    )
    for name, part in (("training", splits.train), ("validation", splits.validation)):
        if len({one.label for one in part}) < 2:
            raise UsageError(
                f"the {name} pictures ({len(part)}) show one class only; raise spurious.per_cell or spurious.validation"
            )
    return splits


def content(root: Path, examples: Sequence[Example]) -> str:
    """SHA-256 over labels and the bytes of the files."""
    total = hashlib.sha256()
    for one in examples:
        status = (root / one.path).stat()
        total.update(f"{one.label} {one.location} ".encode())
        total.update(_file_digest(root / one.path, status.st_size, status.st_mtime_ns))
    return total.hexdigest()


@cache
def _file_digest(path: Path, size: int, changed: int) -> bytes:
    """Read once, unless it was changed meanwhile: every classifier asks for the same files."""
    return hashlib.sha256(path.read_bytes()).digest()


def training(asked: SpuriousConfig) -> dict[Cell, int]:
    """How many training pictures, validation included, each cell gives."""
    counts: dict[Cell, int] = {}
    for environment, share in zip(ENVIRONMENTS, asked.shares, strict=True):
        usual = int(asked.per_cell * share)
        for label, location in zip(asked.classes, asked.train_locations, strict=True):
            counts[Cell(environment=environment, location=location, label=label)] = usual
            counts[Cell(environment=environment, location=asked.filler, label=label)] = asked.per_cell - usual
    return counts


def _test(asked: SpuriousConfig) -> list[Cell]:
    return [
        Cell(environment=environment, location=location, label=label)
        for environment in ENVIRONMENTS
        for label, location in zip(asked.classes, asked.test_locations, strict=True)
    ]


def _pool_cells(asked: SpuriousConfig) -> list[Cell]:
    return [
        Cell(environment=1, location=place, label=label) for place in asked.train_locations for label in asked.classes
    ]


def _pool(asked: SpuriousConfig) -> int:
    """Of each cell."""
    return asked.pool // len(asked.classes) ** 2


def _listed(root: Path, cell: Cell, count: int) -> list[str]:
    """In the order of their names: the order of a directory is not the same everywhere."""
    folder = root / cell.folder
    names = sorted(path.name for path in folder.glob("*") if path.suffix.lower() in SUFFIXES) if folder.is_dir() else []
    if len(names) < count:
        what = f"has {len(names)} pictures" if folder.is_dir() else "is missing"
        raise UsageError(
            f"spurious.folder={str(root)!r}: the cell {cell.folder} {what}, and {count} are needed; give the entire Spawrious "
            "data set (the balanced rows need every class in every place), or lower spurious.per_cell and spurious.pool"
        )
    return [f"{cell.folder}/{name}" for name in names]
