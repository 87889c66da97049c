"""The generator and the editor `scenes`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, EditorConfig, GeneratorConfig, Site
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.offline.scenes.edits import edit
from openmaia.offline.scenes.grammar import Reader, read
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import render
from openmaia.offline.scenes.words import names

_NAME = "scenes"
_REMARK = "drawn scenes; no generative model"


class SceneVocabulary:
    """The words of the grammar."""

    @property
    def words(self) -> tuple[str, ...]:
        return names()

    def missing(self, phrase: str) -> tuple[str, ...]:
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
        return [self._generate(request) for request in requests]

    def _generate(self, request: Generation) -> GeneratedImage:
        scene, missing = read(request.prompt, request.seed)
        return GeneratedImage(image=_encoded(settle(scene), self.config.size), missing_terms=missing, verified_by=_NAME)


class SceneEditor(Component):
    """Applies an instruction to the scene of a drawn image, and draws it again."""

    Config: ClassVar = SceneEditorConfig

    @staticmethod
    def remark(config: Any) -> str:
        return _REMARK

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        return [_edited(request) for request in requests]


def _edited(request: Edit) -> GeneratedImage:
    try:
        before = Scene.loads(request.image.recipe)
    except ValueError:
        return GeneratedImage(image=request.image, missing_terms=(request.instruction[:80],))
    after, missing = edit(before, request.instruction)
    if after == before:
        return GeneratedImage(image=request.image, missing_terms=missing)
    return GeneratedImage(image=_encoded(after, min(request.image.size)), missing_terms=missing)


def _encoded(scene: Scene, size: int) -> EncodedImage:
    return EncodedImage.of(render(scene, size), recipe=scene.dumps())
