"""Judges images with the detector of vocabulary words that the scripted experimenter uses (its eyes)."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

from openmaia.core.images import EncodedImage, Pixels
from openmaia.evaluation.judging.judges import ImageVerdict
from openmaia.offline.vocabulary.words import find

RELIABLE = 0.75
"""Minimum balanced accuracy with which a word's threshold tells generated images with the word from those without it.
The verdict on words below it is None (unknown)."""


class EyesJudge:
    """Decides whether an image shows a label, with a detector that gives the evidence for vocabulary words in an image.

    The image shows the label if the evidence for each word of the label reaches the threshold of the word. The
    thresholds, in eyes.json, were measured on collages (`python -m tests.benchmarks.eyes` measures them again). The
    collages consist of images of the explore split, the half of the packaged images that agents see. The thresholds
    have not been measured on photographs.
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
        """Returns a tuple per image with a value per label: whether the image shows it, or None if that is unknown."""
        wanted = [[word.name for word in find(label)] for label in labels]
        evidence = [self._see(image.pixels) for image in images]
        return [tuple(self._verdict(seen, words) for words in wanted) for seen in evidence]

    def _verdict(self, evidence: Mapping[str, float], words: Sequence[str]) -> ImageVerdict:
        """Returns True if all words are reliable and visible, False if a reliable word is not visible, else None."""
        if not words:
            return None
        seen = [evidence[word] >= self._thresholds[word] for word in words if word in self._thresholds]
        return False if not all(seen) else True if len(seen) == len(words) else None
