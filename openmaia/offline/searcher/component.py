"""The backbone `searcher`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from openmaia.core.components import BackboneConfig, Component, Site, WriterConfig, is_users


@dataclass
class SearcherConfig(BackboneConfig):
    """A fixed search over the words of drawn scenes, without a language model. With it, `pictures`, `generator`, `editor` and
    `viewer` are `scenes` by default."""

    sees: Literal["images", "text"] = "text"
    """It reads what the section `viewer` says of images, and takes none."""
    search: Literal["full", "plain", "random"] = "full"
    """`plain`: the best label of a screening, or of two words, without exemplars and edits. It never abstains. `random`: a
    word by chance, without an experiment."""


class SceneSearcher(Component):
    """Builds a `Searcher`."""

    Config: ClassVar = SearcherConfig
    reads_prompts = False
    tasks = frozenset({"description", "published", "bias", "spurious"})
    companions = dict.fromkeys(("pictures", "generator", "editor", "viewer"), "scenes")

    @classmethod
    def build(cls, config: SearcherConfig, site: Site) -> Any:
        from openmaia.offline.searcher.host import Searcher

        return Searcher(config.search, getattr(site.generator, "without", ()))

    @staticmethod
    def problems(config: SearcherConfig, site: Site) -> Iterator[str]:
        if config.sees != "text":
            yield f"{site.key}.sees={config.sees}; this backbone takes no images, so leave it at text"
        viewer, own = site.viewer, SceneSearcher.companions["viewer"]
        if config.search == "full" and viewer is not None and viewer.kind != own and not is_users(viewer.kind):
            yield (
                f"viewer.kind={viewer.kind}: {site.key}.search=full reads exemplars in the words of viewer.kind={own}, and would "
                f"find nothing in them; give that, or {site.key}.search=plain, which looks at none"
            )

    @staticmethod
    def title(config: SearcherConfig) -> str:
        return f"{config.search} search over the words of scenes"

    @staticmethod
    def remark(config: Any) -> str:
        return "no language model"

    @staticmethod
    def rules(config: Any) -> WriterConfig:
        return WriterConfig(kind="scene_rules")
