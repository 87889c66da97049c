"""The target `scene_units`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from openmaia.core.components import Site, TargetComponent, TargetConfig, within
from openmaia.core.units import TargetInfo, Unit
from openmaia.offline.scenes.component import unknown_words

# The modules that know scenes are imported when they are needed, because a config names this one.


@dataclass
class SceneUnitsConfig(TargetConfig):
    """Units that respond to what drawn scenes show, so that it is known what they respond to. The images have to be drawn
    scenes."""

    half: Literal["tuning", "held_out"] = "tuning"
    """Units of `tuning` are for the development of agents, those of `held_out` only for measurements. No unit is in both, and
    a quarter of the words is in `held_out` alone."""
    count: int = within(24)
    """Largest number of units in each layer."""
    seed: int = within(0, zero=True)
    """Other units for each value."""
    noise: float = within(0.03, zero=True, most=1.0)
    """Standard deviation of the noise, as a share of a unit's largest activation. 0: none."""
    without: list[str] = field(default_factory=list[str])
    """Words whose units are in the layer `outside`, and of which no other layer has units. Give `generator.without` the same,
    so that an agent cannot name them."""


class SceneUnits(TargetComponent):
    """Units over scene graphs."""

    Config: ClassVar = SceneUnitsConfig

    @classmethod
    def build(cls, config: SceneUnitsConfig, site: Site) -> Any:
        from openmaia.offline.scene_units.target import SceneUnitTarget

        return SceneUnitTarget(config.name, _layers(config))

    @classmethod
    def outline(cls, config: SceneUnitsConfig, site: Site) -> TargetInfo:
        return cls.build(config, site).info()

    @staticmethod
    def problems(config: SceneUnitsConfig, site: Site) -> Iterator[str]:
        yield from unknown_words(site.key, config.without)

    @staticmethod
    def truths(config: SceneUnitsConfig, info: TargetInfo) -> Mapping[Unit, tuple[str, ...]]:
        return {
            Unit(target=info.name, layer=layer, index=index): unit.truth
            for layer, several in _layers(config).items()
            for index, unit in enumerate(several)
        }


def _layers(config: SceneUnitsConfig) -> Any:
    from openmaia.offline.scene_units.family import layers

    return layers(config.half, config.count, config.seed, config.noise, config.without)
