"""Detectors of figures on an even ground: their outline by templates, and how many there are."""

from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from openmaia.targets.closed_form.colours import Detector
from openmaia.targets.closed_form.seen import GRID, SIDE, Figure, Mask, Plane, Seen, cells

TEMPLATE = 48
NAMES = ("circle", "square", "triangle", "star", "cross")


def shape(name: str) -> Detector:
    """A figure whose outline overlaps a template (intersection over union in its bounding box) by 0.88, fading to 0.72, and
    no other template more."""

    def detect(seen: Seen) -> Plane:
        evidence = np.zeros((GRID, GRID), dtype=np.float32)
        for figure in seen.figures:
            found = _bar(figure) if name == "bar" else _overlap(figure, name)
            if found > 0:
                here = cells(figure.mask)
                evidence = np.maximum(evidence, found * np.clip(here / max(float(here.max()), 0.3), 0, 1))
        return evidence.astype(np.float32)

    return detect


def _overlap(figure: Figure, name: str) -> float:
    height, width = figure.cut.shape
    if min(height, width) < SIDE // 8 or max(height, width) > 1.3 * min(height, width):
        return 0.0
    mask = np.asarray(Image.fromarray(figure.cut).convert("L").resize((TEMPLATE, TEMPLATE))) > 127
    scores = {other: _iou(mask, template(other)) for other in NAMES}
    return float(np.clip((scores[name] - 0.72) / 0.16, 0, 1)) if scores[name] == max(scores.values()) else 0.0


def _bar(figure: Figure) -> float:
    height, width = figure.cut.shape
    if width < SIDE // 4 or figure.box[1] == 0 or figure.box[3] == SIDE:
        return 0.0  # what runs out of the picture is a stripe
    filled = float(figure.cut.mean())
    return float(np.clip((filled - 0.8) / 0.12, 0, 1) * np.clip(width / height - 2, 0, 1))


def _iou(one: Mask, other: Mask) -> float:
    return float((one & other).sum() / (one | other).sum())


@cache
def template(name: str) -> Mask:
    """(TEMPLATE, TEMPLATE), touching all four sides."""
    image = Image.new("L", (TEMPLATE, TEMPLATE), 0)
    draw, last = ImageDraw.Draw(image), TEMPLATE - 1
    third = TEMPLATE // 3
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
            reach = np.where(np.arange(10) % 2 == 0, 1.0, 0.4)
            points = np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)
            points = (points - points.min(0)) / np.ptp(points, axis=0) * last
            draw.polygon([(float(x), float(y)) for x, y in points], fill=255)
    return np.asarray(image) > 127


def count(low: int, high: int) -> Detector:
    """So many separate figures on an even ground, each of some size."""

    def detect(seen: Seen) -> Plane:
        figures = [figure for figure in seen.figures if figure.size > 0.006 * SIDE**2]
        if not low <= len(figures) <= high:
            return np.zeros((GRID, GRID), dtype=np.float32)
        return np.max([cells(figure.mask) for figure in figures], axis=0)

    return detect
