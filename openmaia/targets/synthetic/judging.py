"""The open-vocabulary detector as a judge of what pictures show."""

from collections.abc import Sequence

import torch

from openmaia.evaluate.judges import Verdict
from openmaia.images import Picture
from openmaia.targets.synthetic.detector import Detector

THRESHOLD = 0.3
"""The published box threshold of synthetic units."""


class DetectorJudge:
    """Yes where there is a box for the label. It never says that it does not know."""

    def __init__(self, model: str, threshold: float = THRESHOLD):
        """model: a Grounding DINO. Raises UsageError where it cannot be had."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._detector = Detector(model, threshold, device)
        self.name = f"detector ({model})"

    def judge(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[tuple[Verdict, ...]]:
        found = self._detector.detect([(picture.pixels, label) for picture in pictures for label in labels])
        seen = [len(boxes.scores) > 0 for boxes in found]
        return [tuple(seen[at : at + len(labels)]) for at in range(0, len(seen), len(labels))]
