"""Detectors of colours, and of concepts that fill only one side of the image."""

from collections.abc import Callable

import numpy as np

from openmaia.offline.closed_form.view import GRID, DetectorInput, EvidenceMap, PixelMask, cells

ConceptDetector = Callable[[DetectorInput], EvidenceMap]
"""Computes the evidence for a concept in an image, shape (GRID, GRID), between 0 and 1."""

SIDES = {
    "top": (slice(0, 4), slice(None)),
    "bottom": (slice(GRID - 4, GRID), slice(None)),
    "left": (slice(None), slice(0, 4)),
    "right": (slice(None), slice(GRID - 4, GRID)),
}


def hue(
    centre: float, width: float, saturation: tuple[float, float] = (0.45, 1.0), value: tuple[float, float] = (0.3, 1.0)
) -> ConceptDetector:
    """Returns a detector of pixels whose hue differs by less than `width` degrees from `centre`.

    `saturation` and `value` are the limits of the other coordinates in HSV.
    """

    def mask(image: DetectorInput) -> PixelMask:
        hues, saturations, values = image.hsv
        near = np.abs((hues - centre + 180) % 360 - 180) < width
        return near & _within(saturations, saturation) & _within(values, value)

    return lambda image: cells(mask(image))


def neutral(darkest: float, brightest: float) -> ConceptDetector:
    """Returns a detector of grey pixels (with nearly equal channels) in a range of value (HSV)."""
    return lambda image: cells(_within(image.hsv[2], (darkest, brightest)) & (np.ptp(image.rgb, axis=2) < 0.1))


def at_side(detector: ConceptDetector, side: str) -> ConceptDetector:
    """Returns a detector of a concept that fills one side of the image and is missing elsewhere.

    Args:
        detector: The detector of the concept anywhere in the image.
        side: A key of SIDES.
    """

    def detect(image: DetectorInput) -> EvidenceMap:
        evidence = detector(image)
        inside = np.zeros((GRID, GRID), dtype=np.bool_)
        inside[SIDES[side]] = True
        only = np.clip(1 - 2.5 * float(evidence[~inside].mean()), 0, 1)
        filled = np.clip(1.5 * float(evidence[inside].mean()), 0, 1)
        return np.where(inside, evidence * only * filled, 0).astype(np.float32)

    return detect


def _within(values: EvidenceMap, limits: tuple[float, float]) -> PixelMask:
    return (values >= limits[0]) & (values <= limits[1])
