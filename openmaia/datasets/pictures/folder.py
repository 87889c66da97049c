"""The pictures `folder`: a folder tree of the user."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from omegaconf import MISSING

from openmaia.core.components import Component, PicturesConfig, Site
from openmaia.core.paths import user_path


@dataclass
class FolderConfig(PicturesConfig):
    """A folder tree of yours."""

    folder: str = MISSING
    """The folder of the images."""


class FolderPictures(Component):
    """The images of a folder and its subfolders."""

    Config: ClassVar = FolderConfig

    @classmethod
    def build(cls, config: FolderConfig, site: Site) -> Any:
        """Returns an `ImageDataset`."""
        from openmaia.datasets.library import ImageDataset

        return ImageDataset.open(user_path(config.folder))

    @staticmethod
    def files(config: FolderConfig, site: Site) -> Iterator[tuple[str, str, Literal["file", "folder"]]]:
        yield "folder", config.folder, "folder"
