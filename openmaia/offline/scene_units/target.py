"""A target of units over scene graphs."""

import hashlib
from collections.abc import Mapping

import numpy as np
from cachetools import LRUCache

from openmaia.core.errors import ToolError, UsageError
from openmaia.core.images import EncodedImage, whole
from openmaia.core.services import Probe, UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.models.targets.measured import MeasuredTarget
from openmaia.models.targets.responses import Response, rounded
from openmaia.offline.scene_units.family import SCENE_EDITION
from openmaia.offline.scene_units.unit import SceneUnit
from openmaia.offline.scene_units.view import SceneView
from openmaia.offline.scenes.graph import Scene

_CACHED_IMAGES = 10_000  # 15 KB each; agents draw the same images for many units
_INPUT_SIDE = 224


class SceneUnitTarget(MeasuredTarget):
    """Measures drawn scenes by their scene graphs, which are their recipes, and no other images.

    Raises (all methods that measure):
        ToolError: An image of `probe` has no scene graph, as an array of the agent's code or a masked image.
        UsageError: The same for other methods, whose images the config names.
    """

    def __init__(self, name: str, units: Mapping[str, tuple[SceneUnit, ...]]):
        self._name, self.units = name, units
        self._views: LRUCache[str, SceneView] = LRUCache(_CACHED_IMAGES)

    def info(self) -> TargetInfo:
        keys = [(layer, [repr(unit) for unit in units]) for layer, units in self.units.items()]
        return TargetInfo(
            name=self._name,
            layers={layer: len(units) for layer, units in self.units.items()},
            digest=hashlib.sha256(f"{SCENE_EDITION} {keys}".encode()).hexdigest(),
            input_size=(_INPUT_SIDE, _INPUT_SIDE),
        )

    def measure(self, layer: str, image: EncodedImage) -> Response:
        view = self._view(image)
        return np.stack([unit.respond(view, image.digest) for unit in self.units[layer]])

    def _activation(self, probe: Probe) -> UnitActivation:  # measures this unit alone
        try:
            view = self._view(probe.image)
        except UsageError as error:
            raise ToolError(
                "this unit can only be measured on drawn scenes: exemplars, and images of prompts and of edits, as they are; "
                "not on arrays or masked images"
            ) from error
        activations = self.units[probe.unit.layer][probe.unit.index].respond(view, probe.image.digest)
        return UnitActivation(value=rounded(activations.max()), map=activations, box=whole(probe.image.pixels))

    def _view(self, image: EncodedImage) -> SceneView:
        if image.recipe not in self._views:
            try:
                scene = Scene.loads(image.recipe)
            except ValueError as error:
                raise UsageError(
                    "target.kind=scene_units measures drawn scenes only, and an image is none; give pictures.kind=scenes, "
                    "generator.kind=scenes and editor.kind=scenes"
                ) from error
            self._views[image.recipe] = SceneView.of(scene)
        return self._views[image.recipe]
