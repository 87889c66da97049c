"""The writer `rules`: what a language model writes otherwise is made by rules of the offline vocabulary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, Site, WriterConfig


@dataclass
class RulesConfig(WriterConfig):
    """Rules of the offline vocabulary."""


class Rules(Component):
    """Builds a `RulePromptWriter`, and knows the other rules."""

    Config: ClassVar = RulesConfig

    @classmethod
    def build(cls, config: RulesConfig, site: Site) -> Any:
        from openmaia.offline.evaluation.prompts import RulePromptWriter

        return RulePromptWriter()

    @staticmethod
    def terms(text: str) -> frozenset[str]:
        from openmaia.offline.evaluation.terms import vocabulary_terms

        return vocabulary_terms(text)

    @staticmethod
    def lexicon() -> Mapping[str, frozenset[str]]:
        from openmaia.offline.vocabulary.words import GENERAL, WORDS

        return {
            spelled: frozenset((word.name, *GENERAL.get(word.name, ())))
            for word in WORDS
            for spelled in (word.name, *word.aliases)
        }

    @staticmethod
    def contrasts(generator: Any) -> Any:
        """Returns what writes contrasts for a backbone that does not write them itself."""
        from openmaia.offline.vocabulary.contrasts import RuleContrasts

        return RuleContrasts()

    @staticmethod
    def contexts(generator: Any) -> tuple[Any, Callable[[str], bool]]:
        """Returns the writer of images for claimed biases, and whether the vocabulary has a class by its exact name."""
        from openmaia.offline.vocabulary.contexts import RuleContextWriter, is_exact_name

        return RuleContextWriter(), is_exact_name
