"""The pictures `python`: images that were passed to OpenMAIA in Python."""

from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, PicturesConfig, Site
from openmaia.core.errors import session_object_error


@dataclass
class PassedPicturesConfig(PicturesConfig):
    """Set by OpenMAIA if images were passed to its Python functions (`openmaia.investigate`)."""


class PassedPictures(Component):
    """Images that only the process has to which they were passed."""

    Config: ClassVar = PassedPicturesConfig

    @classmethod
    def build(cls, config: PassedPicturesConfig, site: Site) -> Any:
        raise session_object_error("pictures.kind", "pictures.kind=folder pictures.folder=FOLDER")
