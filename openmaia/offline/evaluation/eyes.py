"""Judges images with the eyes of the scripted experimenter."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

from openmaia.core.images import EncodedImage, Pixels
from openmaia.evaluation.judging.judges import ImageVerdict
from openmaia.offline.vocabulary.words import find

# Minimum balanced accuracy with which a word's threshold tells generated images with the word from those without it.
RELIABLE = 0.75


class EyesJudge:
    """Decides whether an image shows a label: the evidence for each of its words must reach the threshold of the word.

    The thresholds, in eyes.json, were measured on collages of images of the explore split (`python -m
    measure.benchmarks.eyes` measures them again), not on photographs.

    Args:
        name: The name of the network that provides the evidence.
    """

    def __init__(self, see: Callable[[Pixels], Mapping[str, float]], name: str):
        self.name = f"eyes ({name})"
        self._see = see
        table: dict[str, list[float]] = json.loads((files("openmaia.offline.evaluation") / "eyes.json").read_text())
        self._thresholds = {word: threshold for word, (threshold, accuracy) in table.items() if accuracy >= RELIABLE}

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        """Returns a tuple per image with a verdict per label; None if it is not known."""
        wanted = [[word.name for word in find(label)] for label in labels]
        evidence = [self._see(image.pixels) for image in images]
        return [tuple(self._verdict(seen, words) for words in wanted) for seen in evidence]

    def _verdict(self, evidence: Mapping[str, float], words: Sequence[str]) -> ImageVerdict:
        if not words:
            return None
        seen = [evidence[word] >= self._thresholds[word] for word in words if word in self._thresholds]
        return False if not all(seen) else True if len(seen) == len(words) else None
