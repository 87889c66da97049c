"""The pictures `packages`: photographs and cut-outs that ship in Debian and pip packages."""

from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, PicturesConfig, Site


@dataclass
class PackagedConfig(PicturesConfig):
    """Photographs and cut-outs that ship in Debian and pip packages."""


class PackagedPictures(Component):
    """Photographs and cut-outs that ship in Debian and pip packages."""

    Config: ClassVar = PackagedConfig

    @classmethod
    def withheld(cls, config: Any) -> str:
        return "which come from packages under the GPL, CC-BY-SA and other licences with conditions"

    @classmethod
    def build(cls, config: PackagedConfig, site: Site) -> Any:
        """The first call downloads the packages."""
        from openmaia.datasets.library import ImageDataset
        from openmaia.offline.packaged.library import fetch

        return ImageDataset.open(fetch(site.cache, site.say))
