"""The generator and the editor `scenes`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, EditorConfig, GeneratorConfig, Site
from openmaia.core.services import Edit, GeneratedImage, Generation

# The modules that draw are imported when they are needed, because a config names this one.

_REMARK = "drawn scenes; no generative model"


class SceneVocabulary:
    """The words of the grammar."""

    @property
    def words(self) -> tuple[str, ...]:
        from openmaia.offline.scenes.words import names

        return names()

    def missing(self, phrase: str) -> tuple[str, ...]:
        from openmaia.offline.scenes.grammar import Reader

        return tuple(Reader(phrase, 0, is_question=True).missing)


@dataclass
class SceneConfig(GeneratorConfig):
    """Drawn scenes, without a model."""


@dataclass
class SceneEditorConfig(EditorConfig):
    """Edits drawn scenes. Other images stay as they are."""


class SceneGenerator(Component):
    """Draws prompts as scenes."""

    Config: ClassVar = SceneConfig
    vocabulary = SceneVocabulary()

    @staticmethod
    def problems(config: SceneConfig, site: Site) -> Iterator[str]:
        if not 32 <= config.size <= 1024:
            yield f"{site.key}.size={config.size}; scenes are drawn with 32 to 1024 pixels"

    @staticmethod
    def remark(config: Any) -> str:
        return _REMARK

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        from openmaia.offline.scenes.drawing import draw

        return [draw(request, self.config.size) for request in requests]


class SceneEditor(Component):
    """Applies an instruction to the scene of a drawn image, and draws it again."""

    Config: ClassVar = SceneEditorConfig

    @staticmethod
    def remark(config: Any) -> str:
        return _REMARK

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        from openmaia.offline.scenes.drawing import redraw

        return [redraw(request) for request in requests]
