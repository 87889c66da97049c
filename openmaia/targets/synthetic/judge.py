"""Grounding DINO, and SAM where it is given, as the judge of detection: whether a label is in a picture, and where."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image

from openmaia.evaluate.judges import Verdict
from openmaia.evaluate.masks import Region
from openmaia.images import Picture, Pixels
from openmaia.targets.synthetic.detector import Boxes, Detector
from openmaia.targets.synthetic.rules import SIZE
from openmaia.targets.synthetic.segmenter import BoxSegmenter, SamSegmenter, Segmenter

THRESHOLD = 0.3
"""Of a box's score, as the MAIA paper has it for its synthetic units. Nobody has measured it for other labels."""


class DetectorJudge:
    """Pictures are squashed to a square, as the synthetic units see them. segmenter: "" for boxes as regions."""

    def __init__(self, detector: str, segmenter: str = "", threshold: float = THRESHOLD):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.name = f"detector ({detector}{f', {segmenter}' if segmenter else ', boxes'})"
        self._detector = Detector(detector, threshold, device)
        self._segmenter: Segmenter = SamSegmenter(segmenter, device) if segmenter else BoxSegmenter()

    def judge(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[tuple[Verdict, ...]]:
        found = self._boxes([_squashed(picture) for picture in pictures], labels)
        return [tuple(bool(boxes.scores) for boxes in row) for row in found]

    def locate(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[Region]:
        views = [_squashed(picture) for picture in pictures]
        found = self._boxes(views, labels)
        regions: list[Region] = []
        for view, row in zip(views, found, strict=True):
            corners = np.concatenate([np.empty((0, 4)), *(boxes.corners for boxes in row)])
            regions.append(self._segmenter.masks(view, [corners])[0])
        return regions

    def _boxes(self, views: Sequence[Pixels], labels: Sequence[str]) -> list[list[Boxes]]:
        answers = self._detector.detect([(view, label) for view in views for label in labels])
        return [answers[at * len(labels) : (at + 1) * len(labels)] for at in range(len(views))]


def _squashed(picture: Picture) -> Pixels:
    return np.asarray(picture.pil().convert("RGB").resize((SIZE, SIZE), Image.Resampling.LANCZOS))
