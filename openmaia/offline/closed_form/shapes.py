"""Detectors of shapes on an even background, by templates, and of the number of separate regions on it."""

from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from openmaia.offline.closed_form.colours import ConceptDetector
from openmaia.offline.closed_form.view import (
    GRID_SIDE,
    STATISTICS_SIDE,
    DetectorInput,
    EvidenceMap,
    ForegroundRegion,
    PixelMask,
    cells,
)

_TEMPLATE = 48
SHAPE_NAMES = ("circle", "square", "triangle", "star", "cross")


def shape(name: str) -> ConceptDetector:
    """Returns a detector of regions whose outline fits the template `name` better than all other templates.

    The fit is the intersection over union within the bounding box. The evidence is 0 for a fit below 0.72 and 1 from
    0.88. The name `bar` stands for a wide rectangle, which has no template.
    """

    def detect(image: DetectorInput) -> EvidenceMap:
        evidence = np.zeros((GRID_SIDE, GRID_SIDE), dtype=np.float32)
        for region in image.regions:
            fit = _bar(region) if name == "bar" else _fit(region, name)
            if fit > 0:
                here = cells(region.mask)
                evidence = np.maximum(evidence, fit * np.clip(here / max(float(here.max()), 0.3), 0, 1))
        return evidence.astype(np.float32)

    return detect


def count(low: int, high: int) -> ConceptDetector:
    """Returns a detector of images in which `low` to `high` separate regions stand out from an even background.

    Tiny regions are not counted. The evidence in a cell is the largest share of it that a single region covers.
    """

    def detect(image: DetectorInput) -> EvidenceMap:
        masks = [region.mask for region in image.regions if region.mask.sum() > 0.006 * STATISTICS_SIDE**2]
        if not low <= len(masks) <= high:
            return np.zeros((GRID_SIDE, GRID_SIDE), dtype=np.float32)
        return np.max([cells(mask) for mask in masks], axis=0)

    return detect


@cache
def template(name: str) -> PixelMask:
    """Returns a mask (_TEMPLATE, _TEMPLATE) that touches all four sides."""
    image = Image.new("L", (_TEMPLATE, _TEMPLATE), 0)
    draw, last, third = ImageDraw.Draw(image), _TEMPLATE - 1, _TEMPLATE // 3
    match name:
        case "circle":
            draw.ellipse([0, 0, last, last], fill=255)
        case "square":
            draw.rectangle([0, 0, last, last], fill=255)
        case "triangle":
            draw.polygon([(last / 2, 0), (last, last), (0, last)], fill=255)
        case "cross":
            draw.rectangle([third, 0, last - third, last], fill=255)
            draw.rectangle([0, third, last, last - third], fill=255)
        case _:
            angle = -np.pi / 2 + np.arange(10) * np.pi / 5
            radius = np.where(np.arange(10) % 2 == 0, 1.0, 0.4)
            points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
            points = (points - points.min(0)) / np.ptp(points, axis=0) * last
            draw.polygon([(float(x), float(y)) for x, y in points], fill=255)
    return np.asarray(image) > 127


def _fit(region: ForegroundRegion, name: str) -> float:
    height, width = region.cut.shape
    if min(height, width) < STATISTICS_SIDE // 8 or max(height, width) > 1.3 * min(height, width):
        return 0.0
    mask = np.asarray(Image.fromarray(region.cut).convert("L").resize((_TEMPLATE, _TEMPLATE))) > 127
    scores = {other: _iou(mask, template(other)) for other in SHAPE_NAMES}
    return float(np.clip((scores[name] - 0.72) / 0.16, 0, 1)) if scores[name] == max(scores.values()) else 0.0


def _bar(region: ForegroundRegion) -> float:
    height, width = region.cut.shape
    if width < STATISTICS_SIDE // 4 or region.box[1] == 0 or region.box[3] == STATISTICS_SIDE:
        return 0.0  # a region that is cut off by the border is a stripe
    filled = float(region.cut.mean())
    return float(np.clip((filled - 0.8) / 0.12, 0, 1) * np.clip(width / height - 2, 0, 1))


def _iou(first: PixelMask, second: PixelMask) -> float:
    return float((first & second).sum() / (first | second).sum())
