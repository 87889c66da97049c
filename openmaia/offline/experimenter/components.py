"""The components that see with the eyes of the scripted experimenter: the agent itself, a viewer and a judge."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import BackboneConfig, Component, JudgeConfig, Site, ViewerConfig, WriterConfig, of_config
from openmaia.models.targets.network import pip_packages


@dataclass
class EyesConfig:
    """The classifier with which components look at images."""

    eyes: str = "efficientnet_lite2"
    """The classifier that recognises objects. It must not be the target."""


@dataclass
class ScriptedConfig(EyesConfig, BackboneConfig):
    """A deterministic experimenter without a language model."""


@dataclass
class ScriptedViewerConfig(EyesConfig, ViewerConfig):
    """A classifier and image statistics, with a small vocabulary."""


@dataclass
class SeeingJudgeConfig(EyesConfig, JudgeConfig):
    """The image classifier of the scripted backbone."""


class _Seeing(Component):
    @staticmethod
    def problems(config: Any, site: Site) -> Iterator[str]:
        if site.target is not None and config.eyes == of_config(site.target).title(site.target):
            yield (
                f"{site.key}.eyes={config.eyes!r} is the network under study; experimenter, viewer and judge must see with "
                "another one, such as efficientnet_lite2"
            )

    @staticmethod
    def packages(config: Any, site: Site) -> Iterator[tuple[str, str, str]]:
        for package, command in pip_packages(config.eyes):
            yield f"eyes={config.eyes}", package, command


class Scripted(_Seeing):
    """Builds a `ScriptedBackbone`."""

    Config: ClassVar = ScriptedConfig
    reads_prompts = False
    tasks = frozenset({"description", "published", "bias", "spurious"})

    @classmethod
    def build(cls, config: ScriptedConfig, site: Site) -> Any:
        from openmaia.models.targets.networks import classifier
        from openmaia.offline.experimenter.eyes import Eyes
        from openmaia.offline.experimenter.host import ScriptedBackbone

        return ScriptedBackbone(Eyes(classifier(config.eyes)))

    @staticmethod
    def title(config: ScriptedConfig) -> str:
        return f"scripted (no language model; eyes: {config.eyes})"

    @staticmethod
    def remark(config: Any) -> str:
        return "no language model"

    @staticmethod
    def judge(config: Any) -> JudgeConfig:
        return SeeingJudgeConfig(kind="eyes", eyes=config.eyes)

    @staticmethod
    def rules(config: Any) -> WriterConfig:
        return WriterConfig(kind="rules")


class ScriptedViewer(_Seeing):
    """Builds an `EyesViewer`."""

    Config: ClassVar = ScriptedViewerConfig

    @classmethod
    def build(cls, config: ScriptedViewerConfig, site: Site) -> Any:
        from openmaia.models.targets.networks import classifier, imagenet_labels
        from openmaia.offline.experimenter.viewer import EyesViewer

        return EyesViewer(classifier(config.eyes), imagenet_labels())

    @staticmethod
    def title(config: ScriptedViewerConfig) -> str:
        return f"eyes {config.eyes}"


class SeeingJudge(_Seeing):
    """Builds an `EyesJudge`."""

    Config: ClassVar = SeeingJudgeConfig

    @classmethod
    def build(cls, config: SeeingJudgeConfig, site: Site) -> Any:
        from openmaia.models.targets.networks import classifier
        from openmaia.offline.evaluation.eyes import EyesJudge
        from openmaia.offline.experimenter.eyes import Eyes

        return EyesJudge(Eyes(classifier(config.eyes)).see, config.eyes)
