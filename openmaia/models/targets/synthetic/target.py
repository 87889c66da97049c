"""A target of synthetic units, by which descriptions can be checked: it is known what they respond to."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from cachetools import LRUCache
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.images import Pixels, ViewBox, digest, whole
from openmaia.core.services import LayerProbe, Map, Probe, UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.models.device import default_device, service_errors
from openmaia.models.targets.responses import Response, maxima, rounded
from openmaia.models.targets.synthetic import units
from openmaia.models.targets.synthetic.detector import Detections, GroundingDino
from openmaia.models.targets.synthetic.rules import PRESETS, SIZE, ConceptDetection, activation, combine, reduce_mask
from openmaia.models.targets.synthetic.segmenter import BoxSegmenter, SamSegmenter

# Of 3 KiB each. Agents measure the same images for many units, and units share concepts.
CACHE_ENTRIES = 65_536

DetectionKey = tuple[str, str]
"""The digest of the resized image, and a concept."""


class SyntheticTarget:
    """A target whose units respond to concepts. Each is detected once per image, for all units that share it."""

    batch = 1

    def __init__(
        self,
        name: str,
        detector: str,
        segmenter: str,
        preset: str,
        *,
        listed: units.SyntheticUnits | None = None,
        box_threshold: float | None = None,
        cached: int = CACHE_ENTRIES,
        threads: int = 1,
    ):
        """Loads the detector and the segmenter.

        Args:
            detector: The hub id or the folder of a Grounding DINO.
            segmenter: The hub id or the folder of a SAM. Empty to use boxes as masks.
            preset: `repo` or `paper`, see `rules`.
            listed: The units if they differ from those of the preset.
            box_threshold: None for that of the preset. It is needed for detectors whose scores have another scale.
            cached: Largest number of cached detections.
            threads: CPU threads that PyTorch uses.

        Raises:
            UsageError: The preset is unknown or a model cannot be used.
        """
        if preset not in PRESETS:
            raise UsageError(f"target.units={preset!r} is not known; expected {' or '.join(PRESETS)}")
        torch.set_num_threads(threads)
        # TF32 has ten bits of mantissa; results of different batches would not agree in 5 digits.
        torch.backends.cudnn.allow_tf32 = False
        device = default_device()
        self._rules = PRESETS[preset]
        self._units = units.read(self._rules.units) if listed is None else listed
        threshold = self._rules.box_threshold if box_threshold is None else box_threshold
        self._detector = GroundingDino(detector, threshold, device)
        self._segmenter = SamSegmenter(segmenter, device) if segmenter else BoxSegmenter()
        self._cache = LRUCache[DetectionKey, ConceptDetection](cached)
        # 2: masks of `paper` are dilated.
        identity = (
            f"synthetic {2 if preset == 'paper' else 1}",
            preset,
            threshold,
            self._detector.digest,
            self._segmenter.digest,
        )
        identity += (sorted(listed.items()),) if listed is not None else ()
        self._info = TargetInfo(
            name=name,
            layers={layer: len(concepts) for layer, concepts in self._units.items()},
            digest=hashlib.sha256(repr(identity).encode()).hexdigest(),
            input_size=(SIZE, SIZE),
            mask_threshold=0.0,
        )

    def info(self) -> TargetInfo:
        """Each layer holds the units of one mode and is named after it."""
        return self._info

    def concepts(self, layer: str, index: int) -> units.Concepts:
        """Returns the concepts of a unit, which agents must never see."""
        return self._units[layer][index]

    def truth(self, layer: str, index: int) -> str:
        """Returns the true description of a unit, which agents must never see."""
        return units.truth(layer, self.concepts(layer, index))

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        """Activations are between 0 and 1. Maps, (GRID, GRID), are 0 outside the mask of the unit's concepts."""
        views = {id(probe.image): _squashed(probe.image.pixels) for probe in probes}
        digests = {key: digest(view) for key, view in views.items()}
        detections = self._detect(
            {
                (digests[id(probe.image)], concept): views[id(probe.image)]
                for probe in probes
                for concept in self.concepts(probe.unit.layer, probe.unit.index)
            }
        )
        activations: list[UnitActivation] = []
        for probe in probes:
            small = self._map(probe.unit.layer, probe.unit.index, digests[id(probe.image)], detections)
            activations.append(UnitActivation(value=rounded(small.max()), map=small, box=whole(probe.image.pixels)))
        return activations

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        views = [_squashed(probe.image.pixels) for probe in probes]
        digests = [digest(view) for view in views]
        concepts = {probe.layer: self._concepts([probe.layer]) for probe in probes}
        detections = self._detect(
            {
                (key, concept): view
                for probe, key, view in zip(probes, digests, views, strict=True)
                for concept in concepts[probe.layer]
            }
        )
        return [maxima(self._layer(probe.layer, key, detections)) for probe, key in zip(probes, digests, strict=True)]

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        """Returns the resized image that the detector sees, and a box that covers all of the given one."""
        return _squashed(pixels), whole(pixels)

    def responses(self, views: Sequence[Pixels], recipes: Sequence[str]) -> dict[str, torch.Tensor]:
        """Returns all units' maps on images that `view` returned, (images, units, GRID, GRID), by layer."""
        found = [self._look(view) for view in views]
        return {layer: torch.from_numpy(np.stack([each[layer] for each in found])) for layer in self._units}

    def _look(self, view: Pixels) -> Mapping[str, Response]:
        key = digest(view)
        detections = self._detect({(key, concept): view for concept in self._concepts(self._units)})
        return {layer: self._layer(layer, key, detections) for layer in self._units}

    def _concepts(self, layers: Iterable[str]) -> Iterable[str]:
        return dict.fromkeys(concept for layer in layers for unit in self._units[layer] for concept in unit)

    def _layer(self, layer: str, image: str, detections: Mapping[DetectionKey, ConceptDetection]) -> Response:
        return np.stack([self._map(layer, index, image, detections) for index in range(len(self._units[layer]))])

    def _map(self, layer: str, index: int, image: str, detections: Mapping[DetectionKey, ConceptDetection]) -> Map:
        concepts = [detections[image, concept] for concept in self.concepts(layer, index)]
        return combine(layer, concepts, self._rules, f"{image} {layer} {index}")

    def _detect(self, views: Mapping[DetectionKey, Pixels]) -> dict[DetectionKey, ConceptDetection]:
        """From the cache, or by running detector and segmenter. `views` has the resized image of each detection."""
        detections = {key: self._cache[key] for key in views if key in self._cache}
        missing = [key for key in views if key not in detections]
        with service_errors("the synthetic target"):
            boxes = dict(zip(missing, self._detector.detect([(views[key], key[1]) for key in missing]), strict=True))
            for image in dict.fromkeys(image for image, _ in missing):
                detections |= self._segment({key: boxes[key] for key in missing if key[0] == image}, views)
        self._cache.update({key: detections[key] for key in missing})
        return detections

    def _segment(
        self, boxes: Mapping[DetectionKey, Detections], views: Mapping[DetectionKey, Pixels]
    ) -> dict[DetectionKey, ConceptDetection]:
        """Segments the boxes of several concepts in one image in one call."""
        image = views[next(iter(boxes))]
        masks = self._segmenter.masks(image, [concept.corners for concept in boxes.values()])
        return {
            key: ConceptDetection(
                boxes=len(concept.scores),
                activation=activation(concept.scores, self._rules),
                mask=reduce_mask(mask),
            )
            for (key, concept), mask in zip(boxes.items(), masks, strict=True)
        }


def _squashed(pixels: Pixels) -> Pixels:
    if pixels.shape[:2] == (SIZE, SIZE):
        return pixels
    # Proportions are lost, in both presets.
    return np.asarray(Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.LANCZOS))
