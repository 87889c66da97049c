"""Detectors of colours, and of concepts that fill only one side of the image."""

from collections.abc import Callable

import numpy as np

from openmaia.offline.closed_form.view import GRID_SIDE, DetectorInput, EvidenceMap, PixelMask, cells

ConceptDetector = Callable[[DetectorInput], EvidenceMap]
"""Computes the evidence for a concept, shape (GRID_SIDE, GRID_SIDE), between 0 and 1."""

_SIDES = {
    "top": (slice(0, 4), slice(None)),
    "bottom": (slice(GRID_SIDE - 4, GRID_SIDE), slice(None)),
    "left": (slice(None), slice(0, 4)),
    "right": (slice(None), slice(GRID_SIDE - 4, GRID_SIDE)),
}


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


def _within(values: EvidenceMap, limits: tuple[float, float]) -> PixelMask:
    return (values >= limits[0]) & (values <= limits[1])
