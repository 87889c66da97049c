"""Detectors of colours, and of concepts that fill only one side of the image."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from openmaia.offline.closed_form.view import GRID_SIDE, DetectorInput, EvidenceMap, PixelMask, cells

ConceptDetector = Callable[[DetectorInput], EvidenceMap]
"""Computes the evidence for a concept, shape (GRID_SIDE, GRID_SIDE), between 0 and 1."""

_SIDES = {
    "top": (slice(0, 4), slice(None)),
    "bottom": (slice(GRID_SIDE - 4, GRID_SIDE), slice(None)),
    "left": (slice(None), slice(0, 4)),
    "right": (slice(None), slice(GRID_SIDE - 4, GRID_SIDE)),
}

NAMED_COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (229, 0, 0),
    "orange": (249, 115, 6),
    "yellow": (255, 255, 20),
    "green": (21, 176, 26),
    "blue": (3, 67, 223),
    "purple": (126, 30, 156),
    "pink": (255, 129, 192),
    "brown": (101, 55, 0),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (146, 149, 145),
    "turquoise": (6, 194, 172),
    "maroon": (101, 0, 33),
    "navy": (1, 21, 62),
}
"""What the people of the xkcd color survey (Munroe 2010, CC0) meant by these words, in sRGB."""


def named(name: str) -> ConceptDetector:
    """Returns a detector of pixels whose nearest colour of NAMED_COLOURS, in CIELAB (CIE 1976), is `name`."""
    index = list(NAMED_COLOURS).index(name)

    def detect(image: DetectorInput) -> EvidenceMap:
        if "nearest" not in image.memo:
            palette = lab(np.array(list(NAMED_COLOURS.values()), dtype=np.float32) / np.float32(255))
            distances = np.linalg.norm(lab(image.rgb)[:, :, None] - palette, axis=-1)
            image.memo["nearest"] = distances.argmin(axis=-1)
        return cells(image.memo["nearest"] == index)

    return detect


def hue(
    centre: float, width: float, saturation: tuple[float, float] = (0.45, 1.0), value: tuple[float, float] = (0.3, 1.0)
) -> ConceptDetector:
    """Returns a detector of pixels whose hue differs by less than `width` from `centre`, both in degrees.

    `saturation` and `value` are the lowest and highest values of the other coordinates in HSV, from 0 to 1.
    """

    def mask(image: DetectorInput) -> PixelMask:
        hues, saturations, values = image.hsv
        near = np.abs((hues - centre + 180) % 360 - 180) < width
        return near & _within(saturations, saturation) & _within(values, value)

    return lambda image: cells(mask(image))


def neutral(darkest: float, brightest: float) -> ConceptDetector:
    """Returns a detector of pixels with nearly equal channels whose value (HSV) is in a range."""
    return lambda image: cells(_within(image.hsv[2], (darkest, brightest)) & (np.ptp(image.rgb, axis=2) < 0.1))


def at_side(detector: ConceptDetector, side: str) -> ConceptDetector:
    """Returns a detector of a concept that fills one of _SIDES and is missing elsewhere."""

    def detect(image: DetectorInput) -> EvidenceMap:
        evidence = detector(image)
        inside = np.zeros((GRID_SIDE, GRID_SIDE), dtype=np.bool_)
        inside[_SIDES[side]] = True
        only = np.clip(1 - 2.5 * float(evidence[~inside].mean()), 0, 1)
        filled = np.clip(1.5 * float(evidence[inside].mean()), 0, 1)
        return np.where(inside, evidence * only * filled, 0).astype(np.float32)

    return detect


def lab(rgb: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Converts sRGB (between 0 and 1, channels last) to CIELAB for the illuminant D65 (IEC 61966-2-1)."""
    linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ (matrix / matrix.sum(axis=1, keepdims=True)).T
    curved = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = np.moveaxis(curved, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1).astype(np.float32)


def _within(values: EvidenceMap, limits: tuple[float, float]) -> PixelMask:
    return (values >= limits[0]) & (values <= limits[1])
