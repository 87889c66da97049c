"""The bank: images that are drawn once, kept, and measured like a dataset, for all agents to look up.

    <root>/.bank/<key>/images.arrow  the images
                       bank.json     what they depend on, and the prompt of each; written last

`<key>` is a digest of what the images depend on: the generator with its keys, and the prompts, or the photographs. All
runs and targets of a generator share a bank. Its measurements are exemplars of a dataset `bank-…` of each target.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
from PIL import Image

from openmaia.agent.patience import PatientGenerator
from openmaia.config.schema import Config
from openmaia.core.components import Component, PicturesConfig, Site, identity, of_config
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.paths import user_path
from openmaia.core.services import BankImage, BankWord, Exemplar, GeneratedImage, Generation, Generator
from openmaia.core.text import first_line
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.datasets.library import DatasetImage, ImageDataset
from openmaia.exemplars import image_table
from openmaia.exemplars.bank_prompts import list_requests
from openmaia.exemplars.bank_words import rank_words
from openmaia.exemplars.pictures import shrink
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs import tables
from openmaia.runs.files import Files
from openmaia.runs.lease import held
from openmaia.runs.records import dumps

_FOLDER, _IMAGES, _INDEX = ".bank", "images.arrow", "bank.json"

_VERSION = 1

_AT_ONCE = 64
"""Images that are asked for in one call."""

_CAPTION = 300
"""Characters of a caption that are shown."""

Opener = Callable[[], AbstractContextManager[Generator]]
"""Starts the generator of a config, and ends it with the block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankEntry:
    """What is known of an image of a bank besides its pixels."""

    digest: str
    """Of its pixels."""
    prompt: str
    sources: tuple[str, ...] = ()
    """See `EncodedImage.sources`."""


@dataclass(frozen=True, slots=True)
class ImageBank:
    """A folder, local or at a URL, with the images of a bank."""

    files: Files
    images: tuple[BankEntry, ...]
    """In their order in the file of images, without duplicates."""

    @property
    def name(self) -> str:
        """The name of the bank as a dataset: equal images have equal names."""
        digests = "".join(each.digest for each in self.images)
        return f"bank-{hashlib.sha256(digests.encode()).hexdigest()[:12]}"

    @property
    def prompts(self) -> Mapping[str, BankEntry]:
        """The images by digest."""
        return {each.digest: each for each in self.images}

    @classmethod
    def open(cls, files: Files, facts: Mapping[str, Any] | None = None) -> "ImageBank | None":
        """Reads the index of a bank. None if there is none.

        Raises:
            StoreError: A file is damaged or missing, or the bank depends on other facts than the given ones.
        """
        found = files.read_json(_INDEX)
        if found is None:
            return None
        path = files.path(_INDEX)
        if find_mistyped(found, dict[str, Any]) is not None or found.get("version") != _VERSION:
            raise StoreError(f"{path} is no index of a bank of this version")
        if facts is not None and found.get("facts") != facts:
            raise StoreError(f"{path} is that of another bank")
        rows = found.get("images")
        if not rows or find_mistyped(rows, list[BankEntry]) is not None:
            raise StoreError(f"{path} is damaged: it lists no images, or not in the form that OpenMAIA writes")
        images = tuple(
            BankEntry(digest=row["digest"], prompt=row["prompt"], sources=tuple(row["sources"])) for row in rows
        )
        if not all(each.prompt.isprintable() for each in images):
            raise StoreError(f"{path} is damaged: a prompt has a control character")
        _check_count(files, len(images))
        return cls(files, images)

    def dataset(self) -> ImageDataset:
        """Returns the images as a dataset, all of the explore split. No image is read yet."""
        items = (
            _BankPicture(
                digest=each.digest,
                source=_BankSource(self.files, number, each.prompt),
                kind="photo",
                caption=each.prompt,
                category="",
                split="explore",
            )
            for number, each in enumerate(self.images)
        )
        return ImageDataset(root=f"the bank {self.files.root}", items=tuple(items), skipped={})


def _check_count(files: Files, wanted: int) -> None:
    path = files.path(_IMAGES)
    try:
        with files.mapped(_IMAGES) as stream:
            reader: Any = pa.ipc.open_file(stream)
            found = sum(reader.get_batch(index).num_rows for index in range(reader.num_record_batches))
    except (*tables.READ_ERRORS, FileNotFoundError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if found != wanted:
        raise StoreError(f"{path} holds {found} images, and its index lists {wanted}")


@dataclass(frozen=True, slots=True)
class _BankSource:
    files: Files
    number: int
    prompt: str

    @property
    def name(self) -> str:
        return f"image {self.number} of the bank ({self.prompt})"

    def image(self) -> EncodedImage:
        return image_table.read(self.files, _IMAGES, [self.number])[self.number]

    def read(self) -> bytes:
        return self.image().data


@dataclass(frozen=True, slots=True, kw_only=True)
class _BankPicture(DatasetImage):
    source: _BankSource

    @property
    def recipe(self) -> str:
        return self.source.image().recipe

    def load(self) -> Image.Image:
        image = self.source.image()
        if image.digest != self.digest:
            raise ValueError(f"{self.source.name} is not what was drawn; remove {self.source.files.root}")
        return image.pil()


@dataclass
class BankPicturesConfig(PicturesConfig):
    """The images of a bank in place of the config's pictures, while they are measured."""

    root: str = ""
    """The folder or URL of the bank."""


class BankPictures(Component):
    """The images of a bank."""

    Config: ClassVar = BankPicturesConfig

    @classmethod
    def build(cls, config: BankPicturesConfig, site: Site) -> Any:
        """Returns an `ImageDataset`. Raises StoreError if the bank is missing or damaged."""
        found = ImageBank.open(Files(config.root))
        if found is None:
            raise StoreError(f"{config.root} holds no bank")
        return found.dataset()


def measured_config(config: Config, bank: ImageBank) -> Config:
    """Returns a config whose exemplars are the images of the bank."""
    pictures = BankPicturesConfig(kind=f"{__name__}:{BankPictures.__name__}", root=bank.files.root)
    # Under another name of exemplars also the bank is measured anew, as of a network that has changed.
    parts = (config.exemplars.dataset, bank.name, str(config.bank.k))
    exemplars = replace(config.exemplars, dataset="-".join(filter(None, parts)), folder="", k=config.bank.k)
    return replace(config, pictures=pictures, exemplars=exemplars)


@dataclass(frozen=True, slots=True)
class MeasuredBank:
    """The service `Bank`: the images with what was measured on them."""

    store: ExemplarStore
    kept: Mapping[str, BankEntry]
    """By digest."""

    @classmethod
    def of(cls, bank: ImageBank, store: ExemplarStore) -> "MeasuredBank":
        """`store` holds the exemplars of `measured_config`."""
        return cls(store, bank.prompts)

    def read(self, unit: Unit) -> tuple[BankImage, ...]:
        """See `openmaia.core.services.Bank`."""
        return tuple(map(self._image, self.store.read(unit).exemplars))

    def words(self, unit: Unit, count: int) -> tuple[BankWord, ...]:
        """See `openmaia.core.services.Bank`."""
        exemplars = self.store.read(unit).exemplars
        entries = [(digest, each.prompt) for digest, each in self.kept.items()]
        return rank_words(entries, exemplars, [_bank_digest(each) for each in exemplars], count)

    def _image(self, exemplar: Exemplar) -> BankImage:
        kept = self.kept.get(_bank_digest(exemplar))
        if kept is None:
            raise StoreError(f"{self.store.files.root} holds an image that is not one of the bank; remove the folder")
        return BankImage(
            exemplar=replace(exemplar, image=replace(exemplar.image, sources=kept.sources)), prompt=kept.prompt
        )


def _bank_digest(exemplar: Exemplar) -> str:
    """Returns the digest of the bank's image."""
    # Exemplars name the image of the dataset as their source, which is here the drawn image itself.
    return next(iter(exemplar.image.sources), "")


def keep_bank(
    config: Config,
    generator: Opener,
    pictures: Callable[[], ImageDataset],
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ImageBank | None:
    """Returns the bank of a config, which is drawn, or copied from the photographs, unless it is kept. None: it has none.

    A damaged bank is made again, and this is said.

    Args:
        config: The config.
        generator: Called if images have to be drawn.
        pictures: Opens the pictures of the config. Those of the test split are in no bank.
        say: Receives messages.
        progress: Called with the number of images so far, and the total.

    Raises:
        UsageError: No prompt can be drawn, or no photograph has a caption.
    """
    if not config.bank.images:
        return None
    source = _source(config, generator, pictures, progress)
    facts = source.facts()
    files = _place(config, facts)

    def kept(say: Callable[[str], None]) -> ImageBank | None:
        try:
            return ImageBank.open(files, facts)
        except StoreError as error:
            say(f"bank: {error.message}: it is made again")
            return None

    if (found := kept(lambda line: None)) is None:
        with held(files, say):
            # Another process may have made it meanwhile.
            found = kept(say) or _make(files, facts, source, say)
    return found


def find_bank(config: Config, pictures: Callable[[], ImageDataset]) -> ImageBank | None:
    """Returns the bank of a config as `keep_bank` keeps it, without making one. Raises StoreError if it is damaged."""
    if not config.bank.images:
        return None
    facts = _source(config, _draw_nothing, pictures, lambda done, total: None).facts()
    return ImageBank.open(_place(config, facts), facts)


def _draw_nothing() -> AbstractContextManager[Generator]:
    raise AssertionError("nothing is drawn where a bank is only looked for")


def _source(
    config: Config, generator: Opener, pictures: Callable[[], ImageDataset], progress: Callable[[int, int], None]
) -> "_Drawn | _Photographs":
    return _Photographs(config, pictures) if config.bank.folder else _Drawn(config, generator, progress)


def _place(config: Config, facts: Mapping[str, Any]) -> Files:
    key = hashlib.sha256(dumps(facts).encode()).hexdigest()[:16]
    return Files(config.paths.exemplars).inside(f"{_FOLDER}/{key}")


def _make(
    files: Files, facts: Mapping[str, Any], source: "_Drawn | _Photographs", say: Callable[[str], None]
) -> ImageBank:
    say(f"bank: {source.begins}; every run of the same generator uses it ({files.root})")
    files.delete(_INDEX)
    listed: dict[str, BankEntry] = {}

    def images() -> Iterator[EncodedImage]:
        for prompt, image in source.images():
            if image.digest not in listed:
                listed[image.digest] = BankEntry(digest=image.digest, prompt=prompt, sources=image.sources)
                yield image.packed()

    image_table.write(files, _IMAGES, images())
    if not listed:
        raise UsageError(f"bank: {source.nothing}")
    rows = [{"digest": each.digest, "prompt": each.prompt, "sources": list(each.sources)} for each in listed.values()]
    files.write(_INDEX, dumps({"version": _VERSION, "facts": facts, "images": rows}).encode())
    repeated = source.count - len(listed)
    parts = [*source.left_out(), *([f"{repeated} that equal another are left out"] if repeated else [])]
    say("; ".join([f"bank: {len(listed):,} images", *parts]))
    return ImageBank(files, tuple(listed.values()))


class _Drawn:
    """Images that a generator draws."""

    def __init__(self, config: Config, generator: Opener, progress: Callable[[int, int], None]):
        self._config, self._generator, self._progress = config, generator, progress
        self._requests = list_requests(config)
        self._undrawn = list[str]()
        self.count = 0
        """Number of images so far."""
        self.begins = f"{len(self._requests):,} images are drawn once"
        self.nothing = "none of the prompts can be drawn by this generator; give others as bank.prompts"

    def facts(self) -> dict[str, Any]:
        """Returns what the images depend on."""
        settings = self._config.generator
        # A generator that is not repeatable may be made of the pictures.
        named = identity(settings) or dumps(
            [settings.kind, of_config(settings).title(settings), settings.size, identity(self._config.pictures)]
        )
        requests = dumps([[each.prompt, each.seed] for each in self._requests])
        return {"generator": named, "requests": hashlib.sha256(requests.encode()).hexdigest()}

    def images(self) -> Iterator[tuple[str, EncodedImage]]:
        """Yields the images with their prompts, without those that lack something."""
        with self._generator() as made:
            generator = PatientGenerator(generator=made, minutes=self._config.backbone.outage_minutes)
            for first in range(0, len(self._requests), _AT_ONCE):
                asked = self._requests[first : first + _AT_ONCE]
                yield from self._whole(asked, generator.generate(asked))
                self._progress(first + len(asked), len(self._requests))

    def _whole(
        self, asked: Sequence[Generation], drawn: Iterable[GeneratedImage]
    ) -> Iterator[tuple[str, EncodedImage]]:
        for request, made in zip(asked, drawn, strict=True):
            if made.missing_terms:
                self._undrawn.append(request.prompt)
            else:
                self.count += 1
                yield request.prompt, made.image

    def left_out(self) -> Iterator[str]:
        """Yields what was left out, in words."""
        if self._undrawn:
            yield f"{len(self._undrawn):,} could not be drawn as asked, such as {self._undrawn[0]!r}"


class _Photographs:
    """Photographs with captions."""

    def __init__(self, config: Config, pictures: Callable[[], ImageDataset]):
        folder = config.bank.folder
        opened = ImageDataset.open(user_path(folder), is_divided=False)
        unique = {each.digest: each for each in opened.items}
        captioned = {digest: unique[digest] for digest in sorted(unique) if unique[digest].caption.strip()}
        tested = {each.digest for each in pictures().items if each.split == "test"}
        usable = [each for digest, each in captioned.items() if digest not in tested]
        self._items = usable[: config.bank.images]
        self._without, self._tested = len(unique) - len(captioned), len(captioned) - len(usable)
        self.count = len(self._items)
        self.begins = f"{self.count:,} photographs of {folder} are copied once"
        self.nothing = (
            f"bank.folder={folder} holds no photograph with a caption that is not one of the tests; captions are those of "
            "its index.json"
        )

    def facts(self) -> dict[str, Any]:
        """Returns what the images depend on."""
        listed = dumps([[each.digest, each.caption] for each in self._items])
        return {"photographs": hashlib.sha256(listed.encode()).hexdigest()}

    def images(self) -> Iterator[tuple[str, EncodedImage]]:
        """Yields the photographs with their captions. Raises UsageError if one was changed meanwhile."""
        for item in self._items:
            try:
                image = item.load()
            except ValueError as error:
                raise UsageError(f"bank: an image was changed while it was copied ({error}); start again") from error
            caption = first_line(item.caption, _CAPTION).strip()
            yield caption, EncodedImage.of(shrink(image), [item.digest], item.recipe)

    def left_out(self) -> Iterator[str]:
        """Yields what was left out, in words."""
        if self._without:
            yield f"{self._without:,} photographs without a caption are left out"
        if self._tested:
            yield f"{self._tested:,} that belong to the tests are left out"
