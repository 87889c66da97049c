"""What detectors look at: one picture at a fixed size, and what several of them need of it, computed once."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from openmaia.images import Pixels

SIZE = 224
"""Pixels per side of the view."""
GRID = 14
"""Cells per side of a map."""
SIDE = 112
"""Pixels per side at which statistics are taken."""
CELL = SIDE // GRID

Plane = npt.NDArray[np.float32]
"""(SIDE, SIDE), or a map (GRID, GRID)."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A connected part that stands out from an even ground. box: (top, left, bottom, right), exclusive ends."""

    mask: Mask
    box: tuple[int, int, int, int]

    @property
    def cut(self) -> Mask:
        top, left, bottom, right = self.box
        return self.mask[top:bottom, left:right]

    @property
    def size(self) -> int:
        return int(self.mask.sum())


class Seen:
    """view: (SIZE, SIZE, 3) uint8. memo: what else was found out about the picture, by who found it."""

    def __init__(self, view: Pixels):
        self.view = view
        self.memo: dict[str, Any] = {}

    @cached_property
    def rgb(self) -> npt.NDArray[np.float32]:
        """(SIDE, SIDE, 3) between 0 and 1."""
        return np.asarray(Image.fromarray(self.view).reduce(SIZE // SIDE)).astype(np.float32) / np.float32(255)

    @cached_property
    def hue(self) -> Plane:
        """Degrees."""
        return self._hsv[0]

    @cached_property
    def saturation(self) -> Plane:
        return self._hsv[1]

    @cached_property
    def value(self) -> Plane:
        return self._hsv[2]

    @cached_property
    def _hsv(self) -> tuple[Plane, Plane, Plane]:
        """By the usual hexagon formulas, as in colorsys.rgb_to_hsv."""
        high, low = self.rgb.max(axis=2), self.rgb.min(axis=2)
        spread = np.maximum(high - low, 1e-6)
        red, green, blue = self.rgb[..., 0], self.rgb[..., 1], self.rgb[..., 2]
        sector = np.where(high == green, (blue - red) / spread + 2, (red - green) / spread + 4)
        sector = np.where(high == red, ((green - blue) / spread) % 6, sector)
        return sector * 60, (high - low) / np.maximum(high, 1e-6), high

    @cached_property
    def grey(self) -> Plane:
        return self.rgb.mean(axis=2, dtype=np.float32)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """None where the border is not even."""
        edge = np.concatenate([self.rgb[:4], self.rgb[-4:], self.rgb[:, :4].swapaxes(0, 1)], axis=0).reshape(-1, 3)
        ground = np.median(edge, axis=0)
        if np.mean(np.abs(edge - ground).max(axis=1) < 0.15) < 0.8:
            return ()
        labels, _ = ndimage.label(np.abs(self.rgb - ground).max(axis=2) > 0.18)
        found: list[Figure] = []
        for index, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
            box = (rows.start, columns.start, rows.stop, columns.stop)
            if max(box[2] - box[0], box[3] - box[1]) >= SIDE // 14:
                found.append(Figure(mask=labels == index, box=box))
        return tuple(found)


def cells(values: npt.NDArray[np.generic]) -> Plane:
    """(SIDE, SIDE) -> (GRID, GRID) means."""
    return values.astype(np.float32).reshape(GRID, CELL, GRID, CELL).mean(axis=(1, 3))


def everywhere(evidence: float) -> Plane:
    """Of a whole picture: a map of one value."""
    return np.full((GRID, GRID), np.clip(evidence, 0, 1), dtype=np.float32)


def squashed(pixels: Pixels) -> Pixels:
    """The target's preprocessing: to SIZE x SIZE, whatever the aspect."""
    if pixels.shape[:2] == (SIZE, SIZE):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BICUBIC))
