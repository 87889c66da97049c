"""The editor `generator`: a model that generates and edits (FLUX.2) is loaded once, for both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, EditorConfig, Site, of_config


@dataclass
class SharedEditorConfig(EditorConfig):
    """The model of `generator` edits, too. It is loaded once, and `pools.generator` serves both."""


class SharedEditor(Component):
    """Stands for the generator of the config, which is asked in its place."""

    Config: ClassVar = SharedEditorConfig
    stands_for = "generator"

    @staticmethod
    def problems(config: Any, site: Site) -> Iterator[str]:
        generator = site.generator
        if generator is not None and not hasattr(of_config(generator), "edit"):
            yield (
                f"editor.kind={config.kind}: generator.kind={generator.kind} does not edit; give an editor of its own, or a "
                "generator with a method `edit`"
            )

    @staticmethod
    def title(config: Any) -> str:
        return "the generator"
