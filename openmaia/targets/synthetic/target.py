"""Synthetic units: a detector answers for concepts that are known, so that descriptions can be held against them.

How detections become activations, and what the presets `repo` and `paper` are, says `rules.py`.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from openmaia.errors import HostDead, ServiceError, UsageError
from openmaia.images import Picture, Pixels, digest
from openmaia.services import Activation, LayerProbe, Map, Probe
from openmaia.targets.hooked import Response, maxima, rounded
from openmaia.targets.preprocess import Box
from openmaia.targets.synthetic import units
from openmaia.targets.synthetic.detector import Boxes, Detector
from openmaia.targets.synthetic.rules import PRESETS, SIZE, Found, activation, combine, small_mask
from openmaia.targets.synthetic.segmenter import BoxSegmenter, SamSegmenter, Segmenter
from openmaia.units import TargetInfo

CACHED = 65_536
"""Answers that are kept, the latest: 3 KiB each. Agents show the same pictures to many units, and units share
concepts."""

Key = tuple[str, str]
"""The digest of a view, and a concept."""


class SyntheticTarget:
    """Answers mixed batches of probes: every (picture, concept) pair is detected once, and all in shared passes."""

    def __init__(
        self,
        name: str,
        detector: str,
        segmenter: str,
        preset: str,
        *,
        listed: units.Units | None = None,
        box_threshold: float | None = None,
        cached: int = CACHED,
        threads: int = 1,
    ):
        """detector: a Grounding DINO model, by hub id or folder. segmenter: a SAM model likewise, or empty for boxes as
        masks. preset: `repo` or `paper`. listed: units of one's own in place of the preset's. box_threshold: in place of the preset's own, for a detector whose scores have
        another scale. Raises UsageError."""
        if preset not in PRESETS:
            raise UsageError(f"target.units={preset!r} is not known; expected {' or '.join(PRESETS)}")
        torch.set_num_threads(threads)
        # Ten bits of mantissa would not leave 5 digits to agree on between batches.
        torch.backends.cudnn.allow_tf32 = False
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._rules = PRESETS[preset]
        self._units = units.read(self._rules.units) if listed is None else listed
        threshold = self._rules.box_threshold if box_threshold is None else box_threshold
        self._detector = Detector(detector, threshold, device)
        self._segmenter: Segmenter = SamSegmenter(segmenter, device) if segmenter else BoxSegmenter()
        self._cached = cached
        self._cache: OrderedDict[Key, Found] = OrderedDict()
        parts = ("synthetic 1", preset, threshold, self._detector.digest, self._segmenter.digest)
        parts += (sorted(listed.items()),) if listed is not None else ()
        self._info = TargetInfo(
            name=name,
            layers={layer: len(listed) for layer, listed in self._units.items()},
            digest=hashlib.sha256(repr(parts).encode()).hexdigest(),
            input_size=(SIZE, SIZE),
            mask_threshold=0.0,
        )

    def info(self) -> TargetInfo:
        return self._info

    def concepts(self, layer: str, index: int) -> units.Concepts:
        """What the unit stands for: for the evaluation, never for agents."""
        return self._units[layer][index]

    def truth(self, layer: str, index: int) -> str:
        """The same in words."""
        return units.truth(layer, self.concepts(layer, index))

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        """value: between 0 and 1. map: (GRID, GRID), that value inside the mask and 0 outside. box: the whole picture."""
        views = {id(probe.picture): _squashed(probe.picture.pixels) for probe in probes}
        digests = {key: digest(view) for key, view in views.items()}
        wanted = {
            (digests[id(probe.picture)], concept): views[id(probe.picture)]
            for probe in probes
            for concept in self.concepts(probe.unit.layer, probe.unit.index)
        }
        found = self._find(wanted)
        answers: list[Activation] = []
        for probe in probes:
            small = self._answer(probe.unit.layer, probe.unit.index, digests[id(probe.picture)], found)
            answers.append(Activation(value=rounded(small.max()), map=small, box=_whole(probe.picture)))
        return answers

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        """A detection for every concept of the layer."""
        views = [_squashed(probe.picture.pixels) for probe in probes]
        seen = [digest(view) for view in views]
        concepts = {probe.layer: self._concepts(probe.layer) for probe in probes}
        found = self._find(
            {
                (key, concept): view
                for probe, key, view in zip(probes, seen, views, strict=True)
                for concept in concepts[probe.layer]
            }
        )
        return [maxima(self._layer(probe.layer, key, found)) for probe, key in zip(probes, seen, strict=True)]

    def look(self, pictures: Sequence[Pixels]) -> list[tuple[Pixels, Mapping[str, Response]]]:
        """What detector and segmenter see of pictures, and the maps of all units of all layers: a detection for every
        concept that there is."""
        return [self._look(_squashed(pixels)) for pixels in pictures]

    def _look(self, view: Pixels) -> tuple[Pixels, Mapping[str, Response]]:
        seen = digest(view)
        found = self._find({(seen, concept): view for concept in self._all_concepts()})
        return view, {layer: self._layer(layer, seen, found) for layer in self._units}

    def _layer(self, layer: str, seen: str, found: Mapping[Key, Found]) -> Response:
        return np.stack([self._answer(layer, index, seen, found) for index in range(len(self._units[layer]))])

    def _all_concepts(self) -> Iterable[str]:
        return dict.fromkeys(concept for layer in self._units for concept in self._concepts(layer))

    def _concepts(self, layer: str) -> Iterable[str]:
        return dict.fromkeys(concept for unit in self._units[layer] for concept in unit)

    def _answer(self, layer: str, index: int, seen: str, found: Mapping[Key, Found]) -> Map:
        concepts = [found[seen, concept] for concept in self.concepts(layer, index)]
        return combine(layer, concepts, self._rules, f"{seen} {layer} {index}")

    def _find(self, wanted: Mapping[Key, Pixels]) -> dict[Key, Found]:
        """Every pair's answer, out of the cache or found now."""
        found: dict[Key, Found] = {}
        for key in wanted:
            if key in self._cache:
                self._cache.move_to_end(key)
                found[key] = self._cache[key]
        missing = [key for key in wanted if key not in found]
        with _serving():
            boxes = dict(zip(missing, self._detector.detect([(wanted[key], key[1]) for key in missing]), strict=True))
            for view in dict.fromkeys(seen for seen, _ in missing):
                found.update(self._segment({key: boxes[key] for key in missing if key[0] == view}, wanted))
        self._keep({key: found[key] for key in missing})
        return found

    def _segment(self, boxes: Mapping[Key, Boxes], wanted: Mapping[Key, Pixels]) -> dict[Key, Found]:
        """All that was found in one picture."""
        picture = wanted[next(iter(boxes))]
        masks = self._segmenter.masks(picture, [each.corners for each in boxes.values()])
        return {
            key: Found(
                boxes=len(each.scores),
                activation=activation(each.scores, self._rules),
                mask=small_mask(mask, self._rules),
            )
            for (key, each), mask in zip(boxes.items(), masks, strict=True)
        }

    def _keep(self, found: Mapping[Key, Found]) -> None:
        self._cache.update(found)
        while len(self._cache) > self._cached:
            self._cache.popitem(last=False)


@contextmanager
def _serving() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ServiceError(
            "the synthetic target ran out of GPU memory; lower pools.target.max_batch or give it a larger share of the GPU",
            detail=str(error),
        ) from error
    except torch.AcceleratorError as error:
        raise HostDead(f"the synthetic target lost its GPU: {error}") from error


def _squashed(pixels: Pixels) -> Pixels:
    """Both presets: the whole picture, its sides' proportion given up."""
    if pixels.shape[:2] == (SIZE, SIZE):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.LANCZOS))


def _whole(picture: Picture) -> Box:
    height, width = picture.pixels.shape[:2]
    return 0.0, 0.0, float(width), float(height)
