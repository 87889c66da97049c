"""Detects vocabulary words in images for the scripted experimenter.

The evidence for an object is its class probability in a classification network, which is not the target. The evidence
for colours, patterns, shapes and scenes is computed by image statistics. The only input is the pixels of an image,
without its caption, its file name or the recipe from which it was drawn.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache
from PIL import Image
from scipy import ndimage

from openmaia.core.images import Pixels, digest, largest_channel, smallest_channel
from openmaia.offline.experimenter.transcript import ControlView
from openmaia.offline.vocabulary.words import WORDS, WordKind, of_kind

ImageClassifier = Callable[[Pixels], npt.NDArray[np.float32]]
"""Maps pixels of shape (height, width, 3), uint8, to class probabilities of shape (1000,)."""

Sight = Mapping[str, float]
"""Evidence that an image shows a word, between 0 and 1, by word."""

RgbArray = npt.NDArray[np.float64]
"""Shape (height, width, 3), values between 0 and 1."""

_HUES = {"red": 0, "orange": 30, "yellow": 55, "green": 120, "blue": 222, "purple": 280, "pink": 335}
_SEEN = tuple(word.name for word in WORDS)
# Side in pixels of the image from which statistics are computed.
_LOOK = 96

# Images of an object count as showing another word, too, if the mean evidence for it exceeds that in the control images
# by more than this.
_SHOWN = 0.04
# A colour counts as shown if, on average over the images with the highest activations, more than this share of the
# pixels to which the unit responds has it.
_FILLED = 0.5
_PROPERTIES = [word.name for word in of_kind(WordKind.COLOUR, WordKind.SHAPE, WordKind.PATTERN, WordKind.OBJECT)]


class Eyes:
    """Computes the evidence for each vocabulary word in an image."""

    def __init__(self, classify: ImageClassifier):
        self._classify = classify
        table: dict[str, str] = json.loads((files("openmaia.offline.experimenter") / "concepts.json").read_text())
        self._classes = {word: _expand(spans) for word, spans in table.items()}
        self._sights: LRUCache[str, Sight] = LRUCache(4096)

    def see(self, pixels: Pixels) -> Sight:
        """Returns the evidence for each vocabulary word, cached by the digest of the pixels."""
        key = digest(pixels)
        if key not in self._sights:
            self._sights[key] = self._look(pixels)
        return self._sights[key]

    def colours(self, pixels: Pixels) -> Sight:
        """Returns the evidence for each colour: the approximate share of the pixels that have it.

        It does not run the network. `pixels` has the shape (height, width, 3), of any size.
        """
        return _colours(pixels.astype(np.float64) / 255)

    def shown_beside(self, own: Sequence[ControlView], controls: Sequence[ControlView]) -> frozenset[str]:
        """Returns the words for what images of an object or scene show besides it.

        A word for a property or an object is included if these images show it more than the control images do. A colour
        is also included if it fills the parts of these images that activate the unit. The word for the object itself
        may be included.
        """
        own_sights, control_sights = ([self.see(v.original.pixels) for v in views] for views in (own, controls))
        more = {word for word in _PROPERTIES if _mean(own_sights, word) - _mean(control_sights, word) > _SHOWN}
        strongest = sorted(own, key=lambda view: -view.activation)[: (len(own) + 1) // 2]
        parts = [self.colours(lit) for view in strongest if (lit := _lit_pixels(view)) is not None]
        filled = {word for word in parts[0] if _mean(parts, word) > _FILLED} if parts else set[str]()
        return frozenset(more | filled)

    def _look(self, pixels: Pixels) -> Sight:
        probabilities = self._classify(pixels)
        sight = {word: float(probabilities[indices].sum()) for word, indices in self._classes.items()}
        resized = Image.fromarray(pixels).resize((_LOOK, _LOOK), Image.Resampling.BOX)
        small = np.asarray(resized).astype(np.float64) / 255
        sight |= _colours(small) | _patterns(small) | _shapes(small) | _scenes(small)
        return {word: round(sight.get(word, 0.0), 4) for word in _SEEN}


def lit_part(pixels: Pixels, masked: Pixels) -> npt.NDArray[np.bool_]:
    """Returns the mask of the part of an image to which a unit responds, shape (height, width), eroded by two pixels.

    In `masked`, the other parts are darkened.
    """
    return ndimage.binary_erosion(largest_channel(np.abs(pixels.astype(np.int16) - masked)) <= 2, iterations=2)


def is_masked(original: Pixels, masked: Pixels) -> bool:
    """Returns whether an image is a copy of another one that is darkened where a unit does not respond."""
    return (
        original.shape == masked.shape and bool(lit_part(original, masked).any()) and bool((masked <= original).all())
    )


def bright_part(pixels: Pixels, masked: Pixels) -> Pixels:
    """Crops an image to the bounding box of its `lit_part`, unless this is tiny or nearly the whole image."""
    lit = lit_part(pixels, masked)
    if not 0.005 < lit.mean() < 0.9:
        return pixels
    rows, columns = np.flatnonzero(lit.any(axis=1)), np.flatnonzero(lit.any(axis=0))
    box = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return box if min(box.shape[:2]) >= 16 else pixels


def _lit_pixels(view: ControlView) -> Pixels | None:
    # Shape (n, 1, 3). Nearly no or nearly all pixels say nothing about a part.
    if view.masked is None or view.masked.pixels.shape != view.original.pixels.shape:
        return None
    lit = lit_part(view.original.pixels, view.masked.pixels)
    return view.original.pixels[lit][:, None] if 0.002 < lit.mean() < 0.95 else None


def _mean(sights: Sequence[Sight], word: str) -> float:
    return sum(sight[word] for sight in sights) / len(sights)


def _expand(spans: str) -> list[int]:
    ends = [span.split("-") for span in spans.split(",")]
    return [index for end in ends for index in range(int(end[0]), int(end[-1]) + 1)]


def _colours(rgb: RgbArray) -> dict[str, float]:
    high, low = largest_channel(rgb), smallest_channel(rgb)
    spread = high - low
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = np.where(high > 0, spread / high, 0)
    hue = np.asarray(Image.fromarray((rgb * 255).astype(np.uint8)).convert("HSV"))[..., 0] * (360 / 256)
    vivid = (saturation > 0.35) & (high > 0.2)
    nearest = np.argmin([np.abs((hue - centre + 180) % 360 - 180) for centre in _HUES.values()], axis=0)
    evidence = {name: float((vivid & (nearest == i)).mean()) for i, name in enumerate(_HUES)}
    dull = vivid & (high < 0.62) & np.isin(nearest, [0, 1])
    evidence["brown"] = float(dull.mean())
    evidence["orange"] -= float((dull & (nearest == 1)).mean())
    evidence["red"] -= float((dull & (nearest == 0) & (high < 0.45)).mean())
    evidence["black"] = float((high < 0.18).mean())
    evidence["white"] = float(((low > 0.86) & ~vivid).mean())
    evidence["grey"] = float((~vivid & (high >= 0.18) & (low <= 0.86) & (spread < 0.12)).mean())
    return evidence


def _patterns(rgb: RgbArray) -> dict[str, float]:
    # From shares of the spectral energy in some directions, and from the concentration of the energy in a few
    # frequencies, which is high for patterns that repeat.
    grey = rgb.mean(axis=2)
    window = np.outer(np.hanning(_LOOK), np.hanning(_LOOK))
    energy = np.abs(np.fft.rfft2((grey - grey.mean()) * window)) ** 2
    rows, columns = np.fft.fftfreq(_LOOK)[:, None] * _LOOK, np.fft.rfftfreq(_LOOK)[None] * _LOOK
    radius, angle = np.hypot(rows, columns), np.degrees(np.arctan2(np.abs(rows), columns))
    band = (radius >= 4) & (radius <= 40)
    total = float(energy[band].sum()) + 1e-9
    contrast = min(float(grey.std()) / 0.15, 1.0)

    def share(low: float, high: float) -> float:
        return float(energy[band & (angle >= low) & (angle <= high)].sum()) / total * contrast

    upright, flat, slanted = share(80, 90), share(0, 10), share(35, 55)
    concentrated = float(np.sort(energy[band])[-12:].sum()) / total * contrast
    both = 4 * min(upright, flat) * concentrated
    return {
        "horizontal stripes": upright * concentrated,
        "vertical stripes": flat * concentrated,
        "diagonal stripes": slanted * concentrated * (1 - min(both, 1.0)),
        "checkerboard": slanted * concentrated,
        "grid": both,
        "dots": both * 0.8,
        "rings": concentrated * (1 - max(upright, flat, slanted)),
        "noise": float(energy[(radius > 24) & band].sum()) / total * contrast,
    }


def _shapes(rgb: RgbArray) -> dict[str, float]:
    # From the largest figure on an even background.
    border = np.concatenate([rgb[:4].reshape(-1, 3), rgb[-4:].reshape(-1, 3)])
    ground = np.median(border, axis=0)
    labels, count = ndimage.label(largest_channel(np.abs(rgb - ground)) > 0.15)
    if not count or np.abs(border - ground).max(axis=1).mean() > 0.12:
        return {}
    sizes = ndimage.sum_labels(np.ones_like(labels), labels, np.arange(1, count + 1))
    figure = labels == 1 + int(np.argmax(sizes))
    if not 0.02 < figure.mean() < 0.8:
        return {}
    rows, columns = np.flatnonzero(figure.any(axis=1)), np.flatnonzero(figure.any(axis=0))
    box = figure[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    filled, aspect = float(box.mean()), min(box.shape) / max(box.shape)
    wide = box.shape[1] / box.shape[0]

    def near(target: float) -> float:
        return float(np.clip(1 - abs(filled - target) / 0.12, 0, 1))

    square_box = float(np.clip((aspect - 0.7) / 0.2, 0, 1))
    return {
        "circle": near(0.785) * square_box,
        "square": near(1.0) * square_box,
        "triangle": near(0.5) * square_box,
        "star": near(0.34) * square_box,
        "cross": near(0.56) * square_box,
        "bar": float(np.clip((filled - 0.8) / 0.2, 0, 1)) * float(wide > 2.5),
    }


def _scenes(rgb: RgbArray) -> dict[str, float]:
    # From the mean colour and the roughness of the border.
    frame = np.concatenate([rgb[:12].reshape(-1, 3), rgb[-12:].reshape(-1, 3), rgb[:, :12].reshape(-1, 3)])
    red, green, blue = frame.mean(axis=0)
    rough = min(float(frame.std(axis=0).mean()) / 0.08, 1.0)

    def close(*target: float) -> float:
        return float(np.clip(1 - np.abs(np.array([red, green, blue]) - np.array(target)).max() / 0.2, 0, 1))

    return {
        "grass": close(0.36, 0.52, 0.2) * rough,
        "sand": close(0.82, 0.72, 0.54) * rough,
        "water": close(0.28, 0.48, 0.63) * rough,
        "sky": close(0.64, 0.77, 0.9) * (1 - 0.5 * rough),
        "snow": close(0.9, 0.92, 0.95),
        "wood": close(0.56, 0.39, 0.23) * rough,
        "brick": close(0.62, 0.32, 0.22) * rough,
        "stone": close(0.51, 0.51, 0.5) * rough,
    }
