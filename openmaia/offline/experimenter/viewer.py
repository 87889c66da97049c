"""A viewer without a vision-language model: it puts the results of a classifier and of image statistics into words."""

from collections.abc import Sequence

import numpy as np

from openmaia.core.images import Pixels
from openmaia.core.messages import Chat, Reply
from openmaia.offline.experimenter.eyes import Eyes, ImageClassifier, bright_part, is_masked
from openmaia.offline.vocabulary.words import WordKind, of_kind

# Largest number of classes that are named for an image.
_CLASSES = 3
_LEAST_PROBABILITY = 0.08
# For a colour, a pattern, a shape or a scene that is named.
_LEAST_EVIDENCE = 0.25

_PROPERTIES = [word.name for word in of_kind(WordKind.COLOUR, WordKind.PATTERN, WordKind.SHAPE, WordKind.SCENE)]


class EyesViewer:
    """Names what a classifier recognises in images, and their colours, patterns, shapes and scenes.

    Args:
        classify: The classifier. It must not be the target.
        labels: The names of its classes.
    """

    def __init__(self, classify: ImageClassifier, labels: Sequence[str]):
        self._classify, self._labels, self._eyes = classify, labels, Eyes(classify)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Describes the images of each chat.

        A chat may consist of two images: an image, and a copy of it that is darkened where a unit does not respond.
        Then the part that is not darkened is described, too.
        """
        return [Reply(text=self._describe([i.pixels for m in chat.messages for i in m.images])) for chat in chats]

    def _describe(self, images: Sequence[Pixels]) -> str:
        if len(images) == 2 and is_masked(*images):
            part = bright_part(*images)
            if part is images[0]:
                return f"{self._words(images[0])}; the unit responds to no small part of it."
            return f"{self._words(images[0])}; where the unit responds: {self._words(part)}."
        return f"{'; '.join(map(self._words, images))}."

    def _words(self, pixels: Pixels) -> str:
        probabilities = self._classify(pixels)
        best = [int(i) for i in np.argsort(-probabilities, kind="stable")[:_CLASSES]]
        likely = [i for i in best if probabilities[i] >= _LEAST_PROBABILITY]
        classes = [f"{self._labels[i]} ({probabilities[i]:.2f})" for i in likely]
        sight = self._eyes.see(pixels)
        properties = sorted(
            (word for word in _PROPERTIES if sight[word] >= _LEAST_EVIDENCE), key=lambda word: -sight[word]
        )
        return ", ".join([*classes, *(f"{word} ({sight[word]:.2f})" for word in properties[:3])]) or "nothing clear"
