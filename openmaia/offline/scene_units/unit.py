"""A unit over scene graphs. Its activation is graded and noisy, as those of networks are."""

import hashlib
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from openmaia.core.services import Map
from openmaia.offline.scene_units.terms import Term
from openmaia.offline.scene_units.view import MAP_SIDE, SceneView
from openmaia.offline.scenes.truth import GROUND

Mode = Literal["one", "pair", "or", "and", "andnot", "outside"]
"""`pair`: one phrase of two words, such as a colour and its object; `andnot`: the first term without the second one;
`outside`: a term without words. A term of which it is not known whether the scene shows it counts as not shown."""
Grade = Literal["size", "number", "distance"]
"""What of the figures that show a term makes the activation stronger. Where no figure does, it is always the size."""

# The weakest activation of an image that shows what excites the unit.
_LEAST = 0.4
# The share of the picture, the further figures and the distance at which an activation is the strongest or the weakest.
_LARGE, _MANY, _FAR = 0.2, 3, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneUnit:
    """A unit whose activation map is where the scene shows what excites it."""

    mode: Mode
    terms: tuple[Term, ...]
    """Two for `or`, `and` and `andnot`, otherwise one."""
    grade: Grade = "size"
    exponent: float = 1.0
    gain: float = 1.0
    noise: float = 0.0
    """Standard deviation of the additive noise as a share of the gain; that of the proportional noise is three times as
    large."""

    @property
    def key(self) -> str:
        """Identifies the unit, and seeds its noise together with the digest of the image."""
        return " | ".join((self.mode, self.grade, *(each.text for each in self.terms)))

    @property
    def truth(self) -> tuple[str, ...]:
        """The slots, see `openmaia.evaluation.truth`."""
        texts = tuple(each.text for each in self.terms)
        joint = {"and": " and ", "andnot": " without "}.get(self.mode)
        return (joint.join(texts),) if joint else texts

    def respond(self, view: SceneView, digest: str) -> Map:
        """Returns the activation map, shape (MAP_SIDE, MAP_SIDE). `digest` is that of the image."""
        activations = self._evidence(view)
        if self.noise:
            key = hashlib.sha256(f"{self.key} {digest}".encode()).digest()
            proportional, additive = np.random.default_rng(int.from_bytes(key[:8])).normal(0, self.noise, 2)
            activations = activations * (1 + 3 * proportional) + additive
        return (activations * self.gain).astype(np.float32)

    def _evidence(self, view: SceneView) -> Map:
        planes = [self._plane(view, term) for term in self.terms]
        match self.mode:
            case "or":
                return np.maximum(*planes)
            case "and":
                strengths = [plane.max() for plane in planes]
                weaker = min(strengths)
                return np.maximum(
                    *(plane * (weaker / (own or 1)) for plane, own in zip(planes, strengths, strict=True))
                )
            case "andnot":
                return planes[0] * (not planes[1].any())
            case _:
                return planes[0]

    def _plane(self, view: SceneView, term: Term) -> Map:
        # Between 0 and the strength of the term.
        found = term.locate(view.scene)
        cover = sum((view.covers[each] for each in found), np.zeros((MAP_SIDE, MAP_SIDE), np.float32))
        if not cover.any():
            return cover
        return cover / cover.max() * (_LEAST + (1 - _LEAST) * self._graded(view, found, cover) ** self.exponent)

    def _graded(self, view: SceneView, found: Set[int], cover: Map) -> float:
        if self.grade == "size" or GROUND in found:
            return min(float(cover.mean()) / _LARGE, 1.0)
        if self.grade == "number":
            return min((len(found) - 1) / _MANY, 1.0)
        far = min(each.spot.far if each.spot else 0.0 for each in view.scene.figures if each.id in found)
        return 1 - min(far / _FAR, 1.0)
