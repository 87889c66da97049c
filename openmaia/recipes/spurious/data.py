"""The data set Spawrious, in <folder>/spawrious224/<environment>/<location>/<class>/: divided into parts, or drawn.

In the training images each class is nearly always in one place, in the test images it is in the place of another class
(the "one-to-one shift"). Where a generator that draws a data set of this layout cuts up dataset images, they are of the
test split, which agents never see.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from openmaia.config.schema import Config
from openmaia.config.studies import SpuriousConfig
from openmaia.core.components import identity
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.services import GeneratedImage, Generation, Generator
from openmaia.runs.files import Files

ROOT = "spawrious224"
_ENVIRONMENTS = (0, 1)
_SUFFIXES = (".png", ".jpg", ".jpeg")
CLASS, LOCATION = "{class}", "{location}"
"""What `spurious.prompt` holds once each."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DataCell:
    """One folder of the data set."""

    environment: int
    """One of _ENVIRONMENTS, which differ in how often a class is in its usual place in training."""
    location: str
    label: str

    @property
    def folder(self) -> str:
        """Relative to the root folder of the data set."""
        return f"{ROOT}/{self.environment}/{self.location}/{self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledImage:
    """An image of the data set."""

    path: str
    """Relative to the root folder of the data set."""
    label: int
    """Index of the class."""
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSplits:
    """Parts that share no image."""

    train: tuple[LabelledImage, ...]
    validation: tuple[LabelledImage, ...]
    """Unbalanced like the training images."""
    test: tuple[LabelledImage, ...]
    """Each class is in the training place of another class."""
    pool: tuple[LabelledImage, ...]
    """The same number of images of each class in each training place, for balanced validation sets."""


def check(settings: SpuriousConfig) -> None:
    """Raises UsageError unless each class has a place of its own in training and the place of another class in the
    test, and the numbers are in range.
    """
    for problem in _problems(settings):
        raise UsageError(problem)


def _problems(settings: SpuriousConfig) -> Iterator[str]:
    places = set(settings.train_locations)
    if any(settings.prompt.count(each) != 1 for each in (CLASS, LOCATION)):
        yield f"spurious.prompt={settings.prompt!r}: expected {CLASS} and {LOCATION} once each, as in '{CLASS} on {LOCATION}'"
    for name in (*settings.classes, *settings.train_locations, *settings.test_locations, settings.filler):
        if not name or name.startswith(".") or any(character in "/\\" or ord(character) < 32 for character in name):
            yield f"spurious: {name!r} names a class or a place, and cannot be the name of a folder; give another name"
    if len(settings.classes) < 2:
        yield f"spurious.classes={settings.classes}: a classifier needs at least two classes"
    if len(settings.train_locations) != len(settings.classes) or len(places) != len(settings.classes):
        yield f"spurious.train_locations={settings.train_locations}: give each of {settings.classes} a place of its own"
    pairs = zip(settings.train_locations, settings.test_locations, strict=False)
    if set(settings.test_locations) != places or any(one == other for one, other in pairs):
        yield (
            f"spurious.test_locations={settings.test_locations}: expected {settings.train_locations} in an order in which no class "
            "keeps its place"
        )
    if settings.filler in places:
        yield (
            f"spurious.filler={settings.filler} is one of spurious.train_locations={settings.train_locations}, so that images "
            "of the test would be trained on; give another place"
        )
    if len(settings.shares) != len(_ENVIRONMENTS) or not all(0 < share <= 1 for share in settings.shares):
        yield f"spurious.shares={settings.shares}: expected two shares above 0 and at most 1, one per environment"
    if not 0 < settings.validation < 1:
        yield f"spurious.validation={settings.validation} is out of range; give a share between 0 and 1"
    cells = len(settings.classes) ** 2
    for key, value in (("balanced", settings.balanced), ("pool", settings.pool)):
        if value % (2 * cells):
            yield f"spurious.{key}={value}: it is divided into halves of {cells} equal cells; give a multiple of {2 * cells}"
    if settings.balanced > settings.pool:
        yield f"spurious.balanced={settings.balanced} is more than spurious.pool={settings.pool}; lower it"


def count_wanted(settings: SpuriousConfig) -> dict[DataCell, int]:
    """Counts the images of each folder that training, validation, test and the pool need together. Folders of which
    none is needed are missing.
    """
    counts = count_training(settings)
    for cell in _pool_cells(settings):
        counts[cell] = counts.get(cell, 0) + _per_pool_cell(settings)
    for cell in _test_cells(settings):
        # The test takes the images that the pool leaves, and needs at least one.
        counts[cell] = max(counts.get(cell, 0) + 1, settings.per_cell)
    return {cell: count for cell, count in counts.items() if count}


def count_training(settings: SpuriousConfig) -> dict[DataCell, int]:
    """Counts the images of each folder that training and validation need together.

    Each class has `settings.per_cell` images in each environment: a share of them (`settings.shares`) in its usual
    place, the others in the place `settings.filler`.
    """
    counts: dict[DataCell, int] = {}
    for environment, share in zip(_ENVIRONMENTS, settings.shares, strict=True):
        usual = int(settings.per_cell * share)
        for label, location in zip(settings.classes, settings.train_locations, strict=True):
            counts[DataCell(environment=environment, location=location, label=label)] = usual
            counts[DataCell(environment=environment, location=settings.filler, label=label)] = settings.per_cell - usual
    return counts


def divide(root: Path, settings: SpuriousConfig, seed: int) -> DataSplits:
    """Divides the images of a data set. `seed` decides between training and validation; the other parts depend on file
    names only.

    Raises:
        UsageError: The settings are invalid, a folder has too few images, or the training or validation images lack a
            class.
    """
    check(settings)
    paths = {cell: _listed(root, cell, count) for cell, count in count_wanted(settings).items()}
    index = {label: number for number, label in enumerate(settings.classes)}

    def images(cell: DataCell, paths: Sequence[str]) -> list[LabelledImage]:
        return [LabelledImage(path=path, label=index[cell.label], location=cell.location) for path in paths]

    learnt = [
        image for cell, count in count_training(settings).items() for image in images(cell, paths.get(cell, [])[:count])
    ]
    pool = {cell: paths[cell][-_per_pool_cell(settings) :] for cell in _pool_cells(settings)}
    order: list[int] = np.random.default_rng([seed, 1]).permutation(len(learnt)).tolist()
    held = max(round(settings.validation * len(learnt)), 1)
    splits = DataSplits(
        train=tuple(learnt[number] for number in sorted(order[held:])),
        validation=tuple(learnt[number] for number in sorted(order[:held])),
        test=tuple(
            image
            for cell in _test_cells(settings)
            for image in images(cell, [path for path in paths[cell] if path not in set(pool.get(cell, []))])
        ),
        pool=tuple(image for cell, chosen in pool.items() for image in images(cell, chosen)),
    )
    for name, part in (("training", splits.train), ("validation", splits.validation)):
        shown = {image.label for image in part}
        if absent := [label for number, label in enumerate(settings.classes) if number not in shown]:
            raise UsageError(
                f"the {name} images ({len(part)}) show no {' and no '.join(absent)}; raise spurious.per_cell or "
                "spurious.validation"
            )
    return splits


def hash_content(root: Path, images: Sequence[LabelledImage]) -> str:
    """Returns a SHA-256 hash of the labels, places and file contents of images."""
    total = hashlib.sha256()
    for image in images:
        status = (root / image.path).stat()
        total.update(f"{image.label} {image.location} ".encode())
        total.update(_file_digest(root / image.path, status.st_size, status.st_mtime_ns))
    return total.hexdigest()


# Cached, because all classifiers use the same files; size and time are a part of the key.
@cache
def _file_digest(path: Path, size: int, changed: int) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def _test_cells(settings: SpuriousConfig) -> list[DataCell]:
    return [
        DataCell(environment=environment, location=location, label=label)
        for environment in _ENVIRONMENTS
        for label, location in zip(settings.classes, settings.test_locations, strict=True)
    ]


def _pool_cells(settings: SpuriousConfig) -> list[DataCell]:
    return [
        DataCell(environment=1, location=place, label=label)
        for place in settings.train_locations
        for label in settings.classes
    ]


def _per_pool_cell(settings: SpuriousConfig) -> int:
    return settings.pool // len(settings.classes) ** 2


def _listed(root: Path, cell: DataCell, count: int) -> list[str]:
    """Returns the paths of all images in a folder, sorted. Raises UsageError if there are fewer than `count`."""
    folder = root / cell.folder
    names = (
        sorted(path.name for path in folder.glob("*") if path.suffix.lower() in _SUFFIXES) if folder.is_dir() else []
    )
    if len(names) < count:
        what = f"has {len(names)} images" if folder.is_dir() else "is missing"
        raise UsageError(
            f"spurious.folder={str(root)!r}: the cell {cell.folder} {what}, and {count} are needed; give the entire Spawrious "
            "data set (the balanced rows need every class in every place), or lower spurious.per_cell and spurious.pool"
        )
    return [f"{cell.folder}/{name}" for name in names]


_AT_ONCE = 32


def make_prompt(label: str, location: str, template: str) -> str:
    """Returns the prompt for a class in a place, such as "a corgi on snow". `template` is `spurious.prompt`."""
    thing = f"{'an' if label[0] in 'aeiou' else 'a'} {label}"
    # Not by `format`, which would read other braces of the words, too.
    return location.join(part.replace(CLASS, thing) for part in template.split(LOCATION))


def folder(config: Config) -> Path:
    """Returns the folder of the generated data set in the cache, named by a hash of all settings that determine the
    images (not of package versions).
    """
    kinds = (identity(config.generator), identity(config.pictures), config.spurious.classes, config.spurious.prompt)
    made_from = repr((kinds, sorted(count_wanted(config.spurious).items())))
    name = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    return user_path(config.paths.cache) / "spurious" / "drawn" / name


def draw(files: Files, settings: SpuriousConfig, generator: Generator, progress: Callable[[int, int], None]) -> None:
    """Generates the images that do not exist yet. The file name of an image is its seed.

    Args:
        progress: Called after each batch with the number of existing images and the total.

    Raises:
        UsageError: The settings are invalid, or the generator cannot draw a class or a place.
    """
    check(settings)
    requests = [
        (cell, _request(cell, number, settings.prompt))
        for cell, count in sorted(count_wanted(settings).items())
        for number in range(count)
    ]
    existing = set(files.names(ROOT))
    missing = [(cell, request) for cell, request in requests if _name(cell, request) not in existing]
    done = len(requests) - len(missing)
    for start in range(0, len(missing), _AT_ONCE):
        part = missing[start : start + _AT_ONCE]
        for (cell, request), made in zip(part, generator.generate([request for _, request in part]), strict=True):
            _require_complete(cell, request, made)
            files.write(_name(cell, request), made.image.png)
        done += len(part)
        progress(done, len(requests))


def _request(cell: DataCell, number: int, template: str) -> Generation:
    # Agents cannot request the same image: theirs come from the other split and from other seeds.
    key = hashlib.sha256(f"spurious data set {cell.folder} {number}".encode()).digest()
    prompt = make_prompt(cell.label, cell.location, template)
    return Generation(prompt=prompt, seed=int.from_bytes(key[:8]) >> 1, split="test")


def _name(cell: DataCell, request: Generation) -> str:
    return f"{cell.folder}/{request.seed:016x}.png"


def _require_complete(cell: DataCell, request: Generation, made: GeneratedImage) -> None:
    if made.missing_terms:
        raise UsageError(
            f"spurious.folder is empty, and the generator cannot draw {', '.join(made.missing_terms)} of {request.prompt!r} "
            f"({cell.folder}); give classes and places that it knows, or the folder of a data set"
        )
