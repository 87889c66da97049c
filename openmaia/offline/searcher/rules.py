"""The writer `scene_rules`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, Site, WriterConfig


@dataclass
class SceneRulesConfig(WriterConfig):
    """Rules for the words of drawn scenes."""


class SceneRules(Component):
    """Builds a `ScenePromptWriter`."""

    Config: ClassVar = SceneRulesConfig

    @classmethod
    def build(cls, config: SceneRulesConfig, site: Site) -> Any:
        from openmaia.offline.searcher.writer import ScenePromptWriter

        return ScenePromptWriter(getattr(site.generator, "without", ()))

    @staticmethod
    def terms(text: str) -> frozenset[str]:
        from openmaia.offline.searcher.labels import terms

        return terms(text)

    @staticmethod
    def lexicon() -> Mapping[str, frozenset[str]]:
        from openmaia.offline.searcher.labels import content_lexicon

        return content_lexicon()

    @staticmethod
    def contrasts(generator: Any) -> Any:
        from openmaia.offline.searcher.writer import SceneContrasts

        return SceneContrasts(getattr(generator, "without", ()))

    @staticmethod
    def contexts(generator: Any) -> tuple[Any, Callable[[str], bool]]:
        from openmaia.offline.searcher.contexts import SceneContextWriter, is_kind

        without = getattr(generator, "without", ())
        return SceneContextWriter(without), lambda name: is_kind(name, without)
