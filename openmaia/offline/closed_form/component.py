"""The target `closed_form`: units whose activations are formulas over pixel statistics and outputs of a network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from openmaia.core.components import Site, TargetComponent, TargetConfig
from openmaia.core.units import TargetInfo, Unit

# The family whose units are classes.
_CLASSIFIERS = "biased"


@dataclass
class ClosedFormConfig(TargetConfig):
    """Units whose activations are formulas over pixel statistics and network outputs, so that it is known what they
    respond to."""

    family: Literal["small", "biased"] = "small"
    """`small`: 12 units without noise; `biased`: 96 classifiers, half of them with a planted bias."""


class ClosedForms(TargetComponent):
    """Units whose activations are formulas."""

    Config: ClassVar = ClosedFormConfig

    @classmethod
    def build(cls, config: ClosedFormConfig, site: Site) -> Any:
        if config.family == _CLASSIFIERS:
            from openmaia.offline.closed_form.classes import ClosedFormClasses

            return ClosedFormClasses(config.name)
        from openmaia.offline.closed_form.target import ClosedFormTarget

        return ClosedFormTarget(config.name)

    @classmethod
    def outline(cls, config: ClosedFormConfig, site: Site) -> TargetInfo:
        return cls.build(config, site).info()

    @staticmethod
    def truths(config: ClosedFormConfig, info: TargetInfo) -> Mapping[Unit, tuple[str, ...]]:
        if config.family == _CLASSIFIERS:
            return {}
        from openmaia.offline.closed_form.family import UNITS

        return {
            Unit(target=info.name, layer=layer, index=index): tuple(" ".join(slot) for slot in unit.truth)
            for layer, several in UNITS.items()
            for index, unit in enumerate(several)
        }

    @staticmethod
    def why_no_classes(config: ClosedFormConfig) -> str:
        is_class = config.family == _CLASSIFIERS
        return "" if is_class else f"target.family={config.family!r} has no classes; give target.family=biased"
