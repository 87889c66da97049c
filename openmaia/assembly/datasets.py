"""Opens the image dataset of a config."""

import hashlib

from openmaia.config.schema import Config
from openmaia.config.sections import site
from openmaia.core.components import build, identity
from openmaia.core.text import Printer
from openmaia.datasets.library import ImageDataset


def image_dataset(config: Config, say: Printer = lambda line: None) -> ImageDataset:
    """Opens the image dataset, which may be downloaded. Raises UsageError if images are missing or unusable."""
    at = site(config, "pictures", say=say)
    images = build(config.pictures, at)
    if not isinstance(images, ImageDataset):  # a collection of the user
        name = hashlib.sha256(str(identity(config.pictures)).encode()).hexdigest()[:16]
        images = ImageDataset.of(images, at.cache / "splits" / f"{name}.json")
    for remark in images.remarks:
        say(remark)
    return images
