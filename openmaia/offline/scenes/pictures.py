"""The pictures `scenes`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, JudgeConfig, PicturesConfig, Site, within

# The modules that draw are imported when they are needed, because a config names this one.


@dataclass
class ScenePicturesConfig(PicturesConfig):
    """Drawn scenes of random objects in random places, with captions."""

    count: int = within(2000)
    """Number of pictures. Half of them are for exemplars, half for tests."""
    seed: int = within(0, zero=True)
    """Other scenes for each value."""
    size: int = within(224)
    """Side of the pictures in pixels."""
    clutter: float = within(0.25, zero=True, most=1.0)
    """Share of pictures that show many objects of any kind and colour, half of them on a patterned ground."""


class ScenePictures(Component):
    """Scenes that are drawn when they are needed, and kept in the cache folder."""

    Config: ClassVar = ScenePicturesConfig

    @classmethod
    def build(cls, config: ScenePicturesConfig, site: Site) -> Any:
        """Returns an `ImageDataset`. Draws nothing."""
        from openmaia.datasets.library import ImageDataset
        from openmaia.offline.scenes.album import pictures

        root = f"pictures.kind=scenes ({config.count} drawn scenes)"
        items = pictures(config.count, config.seed, config.size, config.clutter, site.cache / "scenes")
        return ImageDataset(root=root, items=tuple(items), skipped={})

    @staticmethod
    def problems(config: ScenePicturesConfig, site: Site) -> Iterator[str]:
        if not 32 <= config.size <= 1024:
            yield f"{site.key}.size={config.size}; scenes are drawn with 32 to 1024 pixels"
        if config.count < 2:
            yield f"{site.key}.count={config.count}; at least 2 are needed: one for exemplars and one for tests"

    @staticmethod
    def remark(config: Any) -> str:
        return "drawn scenes; no photographs"

    @classmethod
    def withheld(cls, config: Any) -> str:
        return ""  # the program draws them

    @staticmethod
    def judge(config: Any) -> JudgeConfig:
        from openmaia.offline.scenes.judge import SceneGraphJudgeConfig

        return SceneGraphJudgeConfig(kind="scenes")
