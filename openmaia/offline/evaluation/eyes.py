"""Judges images with the detector of vocabulary words that the scripted experimenter uses (its eyes)."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

from openmaia.core.images import EncodedImage, Pixels
from openmaia.evaluation.judging.judges import ImageVerdict
from openmaia.offline.vocabulary.words import find

RELIABLE = 0.75
"""Minimum balanced accuracy of a word. The verdict on a less reliable word is None (unknown)."""


class EyesJudge:
    """Decides whether an image shows a label by comparing the evidence for each word with a threshold.

    The thresholds in eyes.json were measured on generated images of the explore split (`python -m
    tests.benchmarks.eyes` measures them again). They have not been measured on photographs.
    """

    def __init__(self, see: Callable[[Pixels], Mapping[str, float]], name: str):
        """Loads the thresholds.

        Args:
            see: Returns the evidence for each vocabulary word in an image.
            name: The name of the network that provides the evidence.
        """
        self.name = f"eyes ({name})"
        self._see = see
        table: dict[str, list[float]] = json.loads((files("openmaia.offline.evaluation") / "eyes.json").read_text())
        self._thresholds = {word: threshold for word, (threshold, accuracy) in table.items() if accuracy >= RELIABLE}

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        """Returns for each image whether it shows each label, or None if that is unknown."""
        wanted = [[word.name for word in find(label)] for label in labels]
        evidence = [self._see(image.pixels) for image in images]
        return [tuple(self._verdict(seen, words) for words in wanted) for seen in evidence]

    def _verdict(self, evidence: Mapping[str, float], words: Sequence[str]) -> ImageVerdict:
        """Returns True if all words are visible, False if a word is not, and None if that is unknown."""
        if not words:
            return None
        seen = [evidence[word] >= self._thresholds[word] for word in words if word in self._thresholds]
        return False if not all(seen) else True if len(seen) == len(words) else None
