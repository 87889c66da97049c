"""The judge `scenes`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from openmaia.core.components import Component, JudgeConfig, Site
from openmaia.core.images import EncodedImage

if TYPE_CHECKING:
    from openmaia.offline.scenes.graph import Scene

# The modules that read scenes are imported when they are needed, because a config names this one.


@dataclass
class SceneGraphJudgeConfig(JudgeConfig):
    """Reads from its scene graph what a drawn image shows. Knows nothing of other images."""


class SceneGraphs(Component):
    """Builds a `SceneGraphJudge`."""

    Config: ClassVar = SceneGraphJudgeConfig

    @classmethod
    def build(cls, config: SceneGraphJudgeConfig, site: Site) -> Any:
        return SceneGraphJudge()


class SceneGraphJudge:
    """Says what an image shows by its recipe, without looking at pixels."""

    name = "scene graphs"

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        """Returns for each image a verdict on each label: None if the image has no scene, or the grammar does not know
        the label."""
        from openmaia.offline.scenes.truth import holds

        scenes = [_scene(image.recipe) for image in images]
        return [tuple(None if scene is None else holds(scene, label) for label in labels) for scene in scenes]


@lru_cache(1024)  # the pictures of a dataset are asked about for each description
def _scene(recipe: str) -> "Scene | None":
    from openmaia.offline.scenes.graph import Scene

    try:
        return Scene.loads(recipe)
    except ValueError:
        return None
