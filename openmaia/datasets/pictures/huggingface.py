"""The pictures `hf`: a Hugging Face dataset."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from omegaconf import MISSING

from openmaia.core.components import Component, PicturesConfig, Site
from openmaia.core.errors import UsageError
from openmaia.core.secrets import MARK


@dataclass
class HuggingFaceConfig(PicturesConfig):
    """A Hugging Face dataset."""

    dataset: str = MISSING
    """A dataset on the hub such as `uoft-cs/cifar10`; a folder that `save_to_disk` wrote; or one of `imagefolder`,
    `webdataset` (tar shards) and `parquet`, which read the files of `pictures.data`."""
    data: str = ""
    """A file, a folder, a pattern such as `shards/*.tar`, or a URL of one of these that fsspec reads, such as
    `s3://bucket/shards/*.tar` (needs the package s3fs). For a dataset on the hub: a path within it."""
    subset: str = ""
    """The subset (called configuration as well) of a dataset on the hub that has several."""
    revision: str = ""
    """A commit, tag or branch of the dataset on the hub. Empty: the newest commit."""
    split: str = ""
    """The split of the dataset, such as `train`. Empty: the only one. The splits of an image folder are its subfolders
    with these names. OpenMAIA divides the images of this split into its own two halves, one for investigations (explore
    split) and one for tests (test split)."""
    column: str = ""
    """The column that holds the images. Empty: the only one. For tar shards, the part of the files' names behind the
    first dot, such as `jpg`; empty for images of any format, one in each sample."""
    streaming: bool = False
    """Reads only the first 2 x `pictures.limit` rows, for a dataset that is too large to download. These rows are kept in
    the cache of Hugging Face datasets."""


class HuggingFacePictures(Component):
    """The images in a column of a Hugging Face dataset."""

    Config: ClassVar = HuggingFaceConfig

    @classmethod
    def build(cls, config: HuggingFaceConfig, site: Site) -> Any:
        """Returns an `ImageDataset`. The first call downloads the dataset if necessary."""
        from openmaia.datasets.huggingface import HuggingFaceImages
        from openmaia.datasets.library import ImageDataset

        if MARK in config.data:
            raise UsageError(
                f"pictures.data={config.data} was stored without the parts of the URL that may be secret; give it again: "
                "pictures.data=URL, or pictures.data='${oc.env:NAME}' from the start"
            )
        collection = HuggingFaceImages(
            dataset=config.dataset,
            data=config.data,
            subset=config.subset,
            revision=config.revision,
            split=config.split,
            column=config.column,
            # Each split of the dataset has about half of the images.
            first_rows=2 * config.limit if config.streaming else 0,
        )
        site.say(f"opening {collection.root}; the first time all of its images are read")
        name = hashlib.sha256(repr(collection).encode()).hexdigest()[:16]
        return ImageDataset.of(collection, site.cache / "splits" / f"{name}.json")

    @staticmethod
    def problems(config: HuggingFaceConfig, site: Site) -> Iterator[str]:
        if config.streaming and not config.limit:
            yield "pictures.streaming=true needs pictures.limit, the number of images to take; give for example 1000"
