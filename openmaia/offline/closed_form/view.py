"""The input of the detectors: an image at a fixed size, with the statistics that several detectors need."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from openmaia.core.images import Pixels, largest_channel, smallest_channel

INPUT_SIDE = 224
GRID_SIDE = 14
# Side of the image from which statistics are computed.
STATISTICS_SIDE = 112
CELL = STATISTICS_SIDE // GRID_SIDE

EvidenceMap = npt.NDArray[np.float32]
"""Evidence for a concept, shape (GRID_SIDE, GRID_SIDE), or an intermediate result of STATISTICS_SIDE squared."""
PixelMask = npt.NDArray[np.bool_]
"""Shape (STATISTICS_SIDE, STATISTICS_SIDE), or a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForegroundRegion:
    """A connected region that differs from an even background."""

    mask: PixelMask
    """With the shape of the image."""
    box: tuple[int, int, int, int]
    """Top, left, bottom, right in pixels; bottom and right are exclusive."""

    @property
    def cut(self) -> PixelMask:
        """The mask in its bounding box, shape (bottom - top, right - left)."""
        top, left, bottom, right = self.box
        return self.mask[top:bottom, left:right]


class DetectorInput:
    """One image as the detectors see it. What several of them need is computed on first use.

    Args:
        view: Shape (INPUT_SIDE, INPUT_SIDE, 3), uint8.
    """

    def __init__(self, view: Pixels):
        self.view = view
        self.memo: dict[str, Any] = {}
        """Results of detectors, by a key of theirs."""

    @cached_property
    def rgb(self) -> npt.NDArray[np.float32]:
        """Shape (STATISTICS_SIDE, STATISTICS_SIDE, 3), values between 0 and 1."""
        reduced = Image.fromarray(self.view).reduce(INPUT_SIDE // STATISTICS_SIDE)
        return np.asarray(reduced).astype(np.float32) / np.float32(255)

    @cached_property
    def hsv(self) -> tuple[EvidenceMap, EvidenceMap, EvidenceMap]:
        """Hue in degrees, saturation and value, shape (STATISTICS_SIDE, STATISTICS_SIDE) each, as by `colorsys`."""
        high, low = largest_channel(self.rgb), smallest_channel(self.rgb)
        spread = np.maximum(high - low, 1e-6)
        red, green, blue = self.rgb[..., 0], self.rgb[..., 1], self.rgb[..., 2]
        sector = np.where(high == green, (blue - red) / spread + 2, (red - green) / spread + 4)
        sector = np.where(high == red, ((green - blue) / spread) % 6, sector)
        saturation: EvidenceMap = np.divide(high - low, np.maximum(high, 1e-6))
        return sector * 60, saturation, high

    @cached_property
    def grey(self) -> EvidenceMap:
        """Shape (STATISTICS_SIDE, STATISTICS_SIDE)."""
        return self.rgb.mean(axis=2, dtype=np.float32)

    @cached_property
    def regions(self) -> tuple[ForegroundRegion, ...]:
        """Regions that differ from the colour of the border. There are none if the border is not nearly uniform."""
        edge = np.concatenate([self.rgb[:4], self.rgb[-4:], self.rgb[:, :4].swapaxes(0, 1)], axis=0).reshape(-1, 3)
        background = np.median(edge, axis=0)
        if np.mean(np.abs(edge - background).max(axis=1) < 0.15) < 0.8:
            return ()
        labels, _ = ndimage.label(largest_channel(np.abs(self.rgb - background)) > 0.18)
        regions: list[ForegroundRegion] = []
        for index, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
            box = (rows.start, columns.start, rows.stop, columns.stop)
            if max(box[2] - box[0], box[3] - box[1]) >= STATISTICS_SIDE // 14:
                regions.append(ForegroundRegion(mask=labels == index, box=box))
        return tuple(regions)


def cells(values: npt.NDArray[np.generic]) -> EvidenceMap:
    """Returns the mean of each cell, shape (GRID_SIDE, GRID_SIDE); `values` have STATISTICS_SIDE squared."""
    return values.astype(np.float32).reshape(GRID_SIDE, CELL, GRID_SIDE, CELL).mean(axis=(1, 3))


def everywhere(evidence: float) -> EvidenceMap:
    """Returns an evidence map with the same value in each cell, for a concept that concerns the whole image."""
    return np.full((GRID_SIDE, GRID_SIDE), np.clip(evidence, 0, 1), dtype=np.float32)


def resized(pixels: Pixels) -> Pixels:
    """Resizes an image to INPUT_SIDE x INPUT_SIDE, whatever its aspect ratio."""
    if pixels.shape[:2] == (INPUT_SIDE, INPUT_SIDE):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((INPUT_SIDE, INPUT_SIDE), Image.Resampling.BICUBIC))
