"""Synthetic classifiers with a known (planted) bias, whose logits are formulas over the evidence of detectors.

The logit of a class increases with the evidence of EfficientNet-Lite1 for it. In a biased classifier, the evidence for
a context raises or lowers this logit. Two contexts of one classifier interact: each alone has a third of their joint
effect.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from openmaia.core.images import EncodedImage, Pixels, ViewBox, whole
from openmaia.core.services import LayerProbe, Probe, UnitActivation
from openmaia.core.units import OUTPUT, TargetInfo
from openmaia.models.targets.responses import rounded
from openmaia.offline.closed_form import objects
from openmaia.offline.closed_form.concepts import INSIDE, OUTSIDE, Concept, Sort
from openmaia.offline.closed_form.family import hashed, share
from openmaia.offline.closed_form.view import INPUT_SIDE, DetectorInput, resized

if TYPE_CHECKING:
    import torch

_EDITION = "openmaia biased classes 1"

# EfficientNet-Lite1 nearly always recognises these, whatever the context. Both splits of the packaged images have
# cut-outs of them.
_CLASSES = ("bird", "hoofed animal", "carnivore", "ball", "fruit", "musical instrument")
_COLOURS = ("red", "blue", "green", "yellow", "purple", "pink", "white", "black")
_THINGS = ("ball", "bird", "fruit", "musical instrument")
# Effects of planted biases on a logit, in log-odds.
STRENGTHS = (0.5, 1.0, 2.0, 4.0)

# The logit without evidence for the class, and with full evidence, before bias and noise are added.
_ABSENT, _PRESENT = -2.0, 0.4
# EfficientNet-Lite1's highest logit among the ImageNet classes of a class, at which the evidence is 0 and 1; linear in
# between. It saturates well below what an object of the class usually gives, which removes most of that network's own
# sensitivity to the surroundings. The rest makes unbiased classifiers as difficult for an agent as those of real
# networks.
_CLASS_LOGITS = (1.0, 3.0)
# The same for an object that is a planted context.
_CONTEXT_LOGITS = (2.5, 4.5)
# The same for a colour that is a planted context: limits of its share of the image.
_COLOUR_SHARES = (0.12, 0.4)
# Standard deviation, in log-odds.
_NOISE = 0.5
# Images are cached because many agents use the same ones.
_CACHED_IMAGES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedContext:
    """A context, such as red or a ball, that raises or lowers the logit of a biased classifier."""

    name: str
    inside: bool
    """Whether the offline vocabulary has a word for it."""
    evidence: Callable[[DetectorInput], float]
    """Between 0 and 1."""

    def of(self, image: DetectorInput) -> float:
        """Returns the evidence in an image, computed once per image for all classifiers."""
        key = f"context {self.name}"
        if key not in image.memo:
            image.memo[key] = self.evidence(image)
        return image.memo[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasedClassifier:
    """A synthetic classifier of one class, with or without a planted bias."""

    name: str
    contexts: tuple[PlantedContext, ...] = ()
    """None, one, or two that interact."""
    strength: float = 0.0
    """In log-odds, with its sign."""
    key: str = ""
    """Seeds the noise together with the digest of the image."""

    @property
    def inside(self) -> bool:
        """Whether the offline vocabulary has words for all planted contexts."""
        return all(context.inside for context in self.contexts)

    def planted(self, image: DetectorInput) -> float:
        """Returns what the planted bias adds to the logit."""
        evidence = [context.of(image) for context in self.contexts]
        if not evidence:
            return 0.0
        return self.strength * (evidence[0] if len(evidence) == 1 else max(evidence) / 3 + min(evidence) * 2 / 3)

    def logit(self, image: DetectorInput, digest: str) -> float:
        """Returns the logit, with noise that the image's digest seeds."""
        key = hashlib.sha256(f"{_EDITION} {self.key} {digest}".encode()).digest()
        noise = np.random.default_rng(int.from_bytes(key[:8])).normal(0, _NOISE)
        evidence = _ramp(objects.strongest_logit(image, objects.INSIDE_CLASSES[self.name]), _CLASS_LOGITS)
        return float(_ABSENT + (_PRESENT - _ABSENT) * evidence + self.planted(image) + noise)


class ClosedFormClasses:
    """A target whose units are synthetic classifiers, in the single layer OUTPUT. Their probabilities do not add up to
    1."""

    batch = 1

    def __init__(self, name: str, units: Sequence[BiasedClassifier] | None = None):
        self._name = name
        self.units = tuple(classifiers() if units is None else units)
        self._logits: LRUCache[str, npt.NDArray[np.float64]] = LRUCache(_CACHED_IMAGES)

    def info(self) -> TargetInfo:
        return TargetInfo(
            name=self._name,
            layers={OUTPUT: len(self.units)},
            digest=hashlib.sha256(
                f"{_EDITION} {[(unit.key, [context.name for context in unit.contexts]) for unit in self.units]}".encode()
            ).hexdigest(),
            input_size=(INPUT_SIDE, INPUT_SIDE),
            classes=tuple(unit.name for unit in self.units),
        )

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        """Returns probabilities, with logits as `raw`."""
        return [self._activation(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [np.array([rounded(p) for p in _sigmoid(self._of(probe.image)).tolist()]) for probe in probes]

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        """Returns the image unchanged, because the logits' noise depends on its digest."""
        return pixels, whole(pixels)

    def responses(self, views: Sequence[Pixels], recipes: Sequence[str]) -> "dict[str, torch.Tensor]":
        """Returns the probabilities, shape (images, units), by the only layer, OUTPUT."""
        # Here, because processes that only probe the target need no PyTorch.
        import torch

        rows = [_sigmoid(self._of(EncodedImage.of(each))).astype(np.float32) for each in views]
        return {OUTPUT: torch.from_numpy(np.stack(rows))}

    def _activation(self, probe: Probe) -> UnitActivation:
        raw = float(self._of(probe.image)[probe.unit.index])
        value = float(_sigmoid(np.array(raw)))
        return UnitActivation(value=rounded(value), raw=rounded(raw), box=whole(probe.image.pixels))

    def _of(self, image: EncodedImage) -> npt.NDArray[np.float64]:
        key = image.digest
        if key not in self._logits:
            view = DetectorInput(resized(image.pixels))
            self._logits[key] = np.array([unit.logit(view, key) for unit in self.units])
        return self._logits[key]


def classifiers(each: int = 16) -> tuple[BiasedClassifier, ...]:
    """Returns `each` classifiers of each of _CLASSES in pseudo-random order. Half of them have a planted bias."""
    made = [_classifier(name, number) for name in _CLASSES for number in range(each)]
    return tuple(sorted(made, key=lambda classifier: hashed(_EDITION, classifier.key, "order")))


def _classifier(name: str, number: int) -> BiasedClassifier:
    # Odd numbers have a planted bias: a quarter outside of the vocabulary, a quarter two that interact, the others one
    # inside.
    key = f"{name}/{number}"
    if number % 2 == 0:
        return BiasedClassifier(name=name, key=key)
    # Each class starts at another strength, so that the biases outside of the vocabulary do not all have the same one.
    turn = number // 2 + _CLASSES.index(name)
    sign = 1 if share(_EDITION, key, "sign") < 0.5 else -1
    colour, thing = _chosen(key, _colours()), _chosen(key, [context for context in _things() if context.name != name])
    match number // 2 % 4:
        case 0:
            contexts = (_chosen(key, _outside()),)
        case 1:
            contexts = (colour, thing)
        case 2:
            contexts = (colour,)
        case _:
            contexts = (thing if share(_EDITION, key, "kind") < 0.5 else colour,)
    strength = STRENGTHS[(turn + number // 8) % len(STRENGTHS)] * sign
    return BiasedClassifier(name=name, contexts=contexts, strength=strength, key=key)


def _colours() -> list[PlantedContext]:
    return [PlantedContext(name=name, inside=True, evidence=_filled(INSIDE[name])) for name in _COLOURS]


def _things() -> list[PlantedContext]:
    def evidence(classes: str) -> Callable[[DetectorInput], float]:
        return lambda image: _ramp(objects.strongest_logit(image, classes), _CONTEXT_LOGITS)

    return [PlantedContext(name=name, inside=True, evidence=evidence(objects.INSIDE_CLASSES[name])) for name in _THINGS]


def _outside() -> list[PlantedContext]:
    # Numbers of figures are left out, because their detectors also respond to any ordinary object beside the class.
    return [
        PlantedContext(
            name=concept.name,
            inside=False,
            evidence=_filled(concept) if concept.sort is Sort.COLOUR else _somewhere(concept),
        )
        for concept in OUTSIDE.values()
        if concept.sort is not Sort.COUNT
    ]


def _filled(concept: Concept) -> Callable[[DetectorInput], float]:
    return lambda image: _ramp(float(concept.detector(image).mean()), _COLOUR_SHARES)


def _somewhere(concept: Concept) -> Callable[[DetectorInput], float]:
    return lambda image: float(np.clip(concept.detector(image).max(), 0, 1))


def _ramp(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return float(np.clip((value - low) / (high - low), 0, 1))


def _chosen(key: str, among: list[PlantedContext]) -> PlantedContext:
    return among[int(share(_EDITION, key, *(context.name for context in among)) * len(among))]


def _sigmoid(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-logits))
