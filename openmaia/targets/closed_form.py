"""Units computed from the pixels by formulas, so that what they respond to is known.

The detectors serve nowhere else: not in the experimenter's eyes, not in its vocabulary, not in the evaluation. Each
maps a picture to a map of GRID x GRID evidence between 0 and 1; compound units combine maps (`or`: maximum, `and`:
minimum of what two detectors find at about the same place).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from openmaia.images import Picture, Pixels
from openmaia.services import Activation, LayerProbe, Map, Probe
from openmaia.targets.hooked import Response, maxima, rounded
from openmaia.units import TargetInfo

SIZE = 224
GRID = 14
CELL = SIZE // GRID

Plane = npt.NDArray[np.float64]
Detector = Callable[[Plane], Plane]
"""(SIZE, SIZE, 3) RGB between 0 and 1 -> (GRID, GRID) evidence between 0 and 1."""


def _cells(values: Plane) -> Plane:
    return values.reshape(GRID, CELL, GRID, CELL).mean(axis=(1, 3))


def colour(hue: float) -> Detector:
    """Share of saturated pixels within 25 degrees of a hue (degrees)."""

    def detect(rgb: Plane) -> Plane:
        high, low = rgb.max(axis=2), rgb.min(axis=2)
        spread = np.maximum(high - low, 1e-9)
        red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
        sector = np.select([high == red, high == green], [((green - blue) / spread) % 6, (blue - red) / spread + 2])
        sector = np.where((high != red) & (high != green), (red - green) / spread + 4, sector)
        distance = np.abs((sector * 60 - hue + 180) % 360 - 180)
        saturated = (high - low > 0.35 * np.maximum(high, 1e-9)) & (high > 0.25)
        return _cells((saturated & (distance < 25)).astype(np.float64))

    return detect


def stripes(horizontal: bool) -> Detector:
    """Repeated luminance steps across one direction and none along the other, over three cells each way."""

    def detect(rgb: Plane) -> Plane:
        grey = ndimage.gaussian_filter(rgb.mean(axis=2), 1.0)
        down, right = (
            np.abs(np.diff(grey, axis=0, append=grey[-1:])),
            np.abs(np.diff(grey, axis=1, append=grey[:, -1:])),
        )
        across, along = (down, right) if horizontal else (right, down)
        strength = ndimage.uniform_filter(_cells(across), 3, mode="nearest")
        other = ndimage.uniform_filter(_cells(along), 3, mode="nearest")
        evenness = ndimage.minimum_filter(_cells(across), 3, mode="nearest") / np.maximum(strength, 1e-9)
        purity = np.clip(1 - 4 * other / np.maximum(strength, 1e-9), 0, 1)
        return np.clip(strength / 0.03, 0, 1) * purity * np.clip(evenness * 2, 0, 1)

    return detect


def blob(wanted: Callable[[float], float]) -> Detector:
    """One compact figure on an even ground, judged by how much of its bounding box it fills."""

    def detect(rgb: Plane) -> Plane:
        border = np.concatenate([rgb[:8].reshape(-1, 3), rgb[-8:].reshape(-1, 3), rgb[:, :8].reshape(-1, 3)])
        ground = np.median(border, axis=0)
        evenness = float(np.mean(np.abs(border - ground).max(axis=1) < 0.15))
        labels, count = ndimage.label(np.abs(rgb - ground).max(axis=2) > 0.2)
        evidence = np.zeros((GRID, GRID))
        if not count or evenness < 0.8:
            return evidence
        for index, slices in enumerate(ndimage.find_objects(labels), start=1):
            box = labels[slices] == index
            height, width = box.shape
            if min(height, width) < SIZE // 8 or max(height, width) > 1.4 * min(height, width):
                continue
            evidence = np.maximum(evidence, _cells((labels == index).astype(np.float64)) * wanted(float(box.mean())))
        return evidence

    return detect


def _near(target: float) -> Callable[[float], float]:
    """1 at the target share of the bounding box, 0 from 0.08 away."""
    return lambda filled: float(np.clip(1.5 - abs(filled - target) / 0.05, 0, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """truth: the concepts, as a person would name them."""

    truth: tuple[str, ...]
    detector: Detector


def _or(one: ClosedForm, other: ClosedForm) -> ClosedForm:
    def detect(rgb: Plane) -> Plane:
        return np.maximum(one.detector(rgb), other.detector(rgb))

    return ClosedForm(truth=one.truth + other.truth, detector=detect)


def _and(one: ClosedForm, other: ClosedForm) -> ClosedForm:
    def detect(rgb: Plane) -> Plane:
        return np.minimum(one.detector(rgb), other.detector(rgb))

    return ClosedForm(truth=one.truth + other.truth, detector=detect)


RED = ClosedForm(truth=("red",), detector=colour(0))
GREEN = ClosedForm(truth=("green",), detector=colour(120))
BLUE = ClosedForm(truth=("blue",), detector=colour(225))
YELLOW = ClosedForm(truth=("yellow",), detector=colour(55))
HORIZONTAL = ClosedForm(truth=("horizontal stripes",), detector=stripes(horizontal=True))
VERTICAL = ClosedForm(truth=("vertical stripes",), detector=stripes(horizontal=False))
CIRCLE = ClosedForm(truth=("circle",), detector=blob(_near(np.pi / 4)))
SQUARE = ClosedForm(truth=("square",), detector=blob(_near(1.0)))

LAYERS: Mapping[str, tuple[ClosedForm, ...]] = {
    "mono": (RED, GREEN, BLUE, HORIZONTAL, VERTICAL, CIRCLE),
    "or": (_or(RED, HORIZONTAL), _or(YELLOW, VERTICAL), _or(GREEN, CIRCLE)),
    "and": (_and(RED, CIRCLE), _and(BLUE, HORIZONTAL), _and(GREEN, SQUARE)),
}


class ClosedFormTarget:
    """The same interface as a network, and the same preprocessing by its owner's rule: squashed to SIZE x SIZE."""

    def __init__(self, name: str, *, shuffled: bool = False):
        self._name, self._shuffled = name, shuffled

    def info(self) -> TargetInfo:
        digest = hashlib.sha256(b"closed form 1").hexdigest()
        layers = {layer: len(units) for layer, units in LAYERS.items()}
        return TargetInfo(name=self._name, layers=layers, digest=digest, input_size=(SIZE, SIZE))

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return [self._answer(probe) for probe in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [maxima(self._layer(probe.layer, self._seen(probe.picture))) for probe in probes]

    def look(self, pictures: Sequence[Pixels]) -> list[tuple[Pixels, Mapping[str, Response]]]:
        """What is seen of pictures, and the maps of all units."""
        return [self._look(_squashed(pixels)) for pixels in pictures]

    def _look(self, view: Pixels) -> tuple[Pixels, Mapping[str, Response]]:
        rgb = self._seen(Picture.of(view))
        return view, {layer: self._layer(layer, rgb) for layer in LAYERS}

    def _layer(self, layer: str, rgb: Plane) -> Response:
        return np.stack([unit.detector(rgb) for unit in LAYERS[layer]]).astype(np.float32)

    def _answer(self, probe: Probe) -> Activation:
        unit = LAYERS[probe.unit.layer][probe.unit.index]
        small: Map = unit.detector(self._seen(probe.picture)).astype(np.float32)
        height, width = probe.picture.pixels.shape[:2]
        return Activation(value=rounded(small.max()), map=small, box=(0.0, 0.0, float(width), float(height)))

    def _seen(self, picture: Picture) -> Plane:
        pixels = _stand_in(picture.digest) if self._shuffled else _squashed(picture.pixels)
        return pixels.astype(np.float64) / 255


def _squashed(pixels: Pixels) -> Pixels:
    if pixels.shape[:2] == (SIZE, SIZE):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BICUBIC))


def _stand_in(digest: str) -> Pixels:
    """Another picture instead, drawn by the digest alone: a figure or stripes in two random colours."""
    random = np.random.default_rng(int(digest[:16], 16))
    ground, ink = random.integers(0, 256, (2, 3))
    rows, columns = np.mgrid[:SIZE, :SIZE]
    centre, radius = random.integers(70, 154, 2), random.integers(25, 60)
    figures = (
        (rows // 12) % 2 == 0,
        (columns // 12) % 2 == 0,
        np.hypot(rows - centre[0], columns - centre[1]) < radius,
        np.maximum(np.abs(rows - centre[0]), np.abs(columns - centre[1])) < radius,
    )
    return np.where(figures[random.integers(len(figures))][..., None], ink, ground).astype(np.uint8)
