"""Detectors of colours, and of a colour that keeps to one side of the picture."""

from collections.abc import Callable

import numpy as np

from openmaia.targets.closed_form.seen import GRID, Mask, Plane, Seen, cells

Detector = Callable[[Seen], Plane]
"""-> (GRID, GRID) evidence between 0 and 1."""


def hue(
    centre: float,
    width: float,
    saturation: tuple[float, float] = (0.45, 1.0),
    value: tuple[float, float] = (0.3, 1.0),
) -> Detector:
    """Share of pixels within `width` degrees of a hue, in a range of saturation and value."""

    def mask(seen: Seen) -> Mask:
        near = np.abs((seen.hue - centre + 180) % 360 - 180) < width
        return near & _within(seen.saturation, saturation) & _within(seen.value, value)

    return lambda seen: cells(mask(seen))


def neutral(darkest: float, brightest: float) -> Detector:
    """Share of pixels of little colour, in a range of value."""
    return lambda seen: cells(_within(seen.value, (darkest, brightest)) & (np.ptp(seen.rgb, axis=2) < 0.1))


def _within(values: Plane, limits: tuple[float, float]) -> Mask:
    return (values >= limits[0]) & (values <= limits[1])


SIDES = {
    "top": (slice(0, 4), slice(None)),
    "bottom": (slice(GRID - 4, GRID), slice(None)),
    "left": (slice(None), slice(0, 4)),
    "right": (slice(None), slice(GRID - 4, GRID)),
}


def at_side(detector: Detector, side: str) -> Detector:
    """What fills one side of the picture and is missing from the rest of it: a position, not a colour."""

    def detect(seen: Seen) -> Plane:
        evidence = detector(seen)
        inside = np.zeros((GRID, GRID), dtype=np.bool_)
        inside[SIDES[side]] = True
        only = np.clip(1 - 2.5 * float(evidence[~inside].mean()), 0, 1)
        filled = np.clip(1.5 * float(evidence[inside].mean()), 0, 1)
        return np.where(inside, evidence * only * filled, 0).astype(np.float32)

    return detect
