"""What a scene shows, and where."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from openmaia.core.images import Mask
from openmaia.core.services import Map
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.render import masks
from openmaia.offline.scenes.truth import GROUND

MAP_SIDE = 14
_SIDE = 112


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneView:
    """A settled scene without the figures that others hide."""

    scene: Scene
    covers: Mapping[int, Map]
    """The share of each cell that a figure covers, shape (MAP_SIDE, MAP_SIDE), by id. GROUND: what no figure covers."""

    @classmethod
    def of(cls, scene: Scene) -> "SceneView":
        covers = {each: _cells(mask) for each, mask in masks(scene, _SIDE).items() if mask.any()}
        shown = replace(scene, figures=tuple(each for each in scene.figures if each.id in covers))
        nothing = np.zeros((MAP_SIDE, MAP_SIDE), np.float32)
        ground = np.clip(1 - sum(covers.values(), nothing), 0, 1)
        return cls(scene=shown, covers={**covers, GROUND: ground})


def _cells(mask: Mask) -> Map:
    cell = _SIDE // MAP_SIDE
    return mask.reshape(MAP_SIDE, cell, MAP_SIDE, cell).mean(axis=(1, 3), dtype=np.float32)
