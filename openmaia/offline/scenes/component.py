"""The generator and the editor `scenes`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from openmaia.core.components import Component, EditorConfig, GeneratorConfig, Site, WriterConfig
from openmaia.core.services import Edit, GeneratedImage, Generation

# The modules that draw are imported when they are needed, because a config names this one.

_REMARK = "drawn scenes; no generative model"


@dataclass(frozen=True, slots=True)
class SceneVocabulary:
    """The words of the grammar, without some."""

    without: Sequence[str] = ()

    @property
    def words(self) -> tuple[str, ...]:
        from openmaia.offline.scenes.words import names

        return tuple(each for each in names() if each not in self.without)

    def missing(self, phrase: str) -> tuple[str, ...]:
        from openmaia.offline.scenes.grammar import Reader

        return tuple(Reader(phrase, 0, is_question=True, without=self.without).missing)


def unknown_words(key: str, without: Sequence[str]) -> Iterator[str]:
    """Yields what is wrong with a list of words to leave out."""
    if not without:
        return
    from openmaia.offline.scenes.words import names

    if unknown := sorted({*without} - {*names()}):
        yield f"{key}.without={unknown}: no words of scenes; expected some of {', '.join(names())}"


@dataclass
class SceneConfig(GeneratorConfig):
    """Drawn scenes, without a model."""

    without: list[str] = field(default_factory=list[str])
    """Words that it does not know, nor their synonyms, so that nothing can be found that needs them. The editor does not know
    them, either."""


@dataclass
class SceneEditorConfig(EditorConfig):
    """Edits drawn scenes. Other images stay as they are."""


def _version() -> str:
    from openmaia.offline.scenes.album import VERSION

    return VERSION


class SceneGenerator(Component):
    """Draws prompts as scenes."""

    Config: ClassVar = SceneConfig

    @staticmethod
    def version(config: Any) -> str:
        return _version()

    @staticmethod
    def problems(config: SceneConfig, site: Site) -> Iterator[str]:
        if not 32 <= config.size <= 1024:
            yield f"{site.key}.size={config.size}; scenes are drawn with 32 to 1024 pixels"
        yield from unknown_words(site.key, config.without)

    @staticmethod
    def vocabulary(config: SceneConfig) -> SceneVocabulary:
        return SceneVocabulary(config.without)

    @staticmethod
    def rules(config: Any) -> WriterConfig:
        return WriterConfig(kind="scene_rules")

    @staticmethod
    def remark(config: Any) -> str:
        return _REMARK

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        from openmaia.offline.scenes.drawing import draw

        return [draw(request, self.config.size, self.config.without) for request in requests]


class SceneEditor(Component):
    """Applies an instruction to the scene of a drawn image, and draws it again."""

    Config: ClassVar = SceneEditorConfig

    @staticmethod
    def version(config: Any) -> str:
        return _version()

    def __init__(self, config: SceneEditorConfig, without: Sequence[str] = ()):
        super().__init__(config)
        self._without = without

    @classmethod
    def build(cls, config: SceneEditorConfig, site: Site) -> Self:
        return cls(config, getattr(site.generator, "without", ()))

    @staticmethod
    def remark(config: Any) -> str:
        return _REMARK

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        from openmaia.offline.scenes.drawing import redraw

        return [redraw(request, self._without) for request in requests]
