"""Judges of images."""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.core.images import EncodedImage, Pixels
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.language_model import (
    LanguageModel,
    MalformedAnswer,
    Question,
    UnansweredQuestion,
    fill_template,
)

ImageVerdict = bool | None
"""None if the judge does not know."""

Region = npt.NDArray[np.bool_]
"""A mask over the whole image, (height, width) in any resolution."""

_VERDICT = re.compile(r"^\W*(\d{1,3})\W+(yes|no|unsure|unknown)\b", re.IGNORECASE | re.MULTILINE)
_VERDICTS: Mapping[str, ImageVerdict] = {"yes": True, "no": False, "unsure": None, "unknown": None}


class Judge(Protocol):
    """Decides for images whether they show what a label names."""

    @property
    def name(self) -> str:
        """The judge's name in results."""
        ...

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        """Returns for each image a verdict on each label."""
        ...


@runtime_checkable
class LocatingJudge(Protocol):
    """A `Judge` that also says where."""

    def locate(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[Region]:
        """Returns one mask for each image, which is True where any of the labels is visible."""
        ...


class ModelJudge:
    """Asks a vision-language model one question for each image. Without a usable answer, all verdicts on it are None."""

    def __init__(self, model: LanguageModel):
        self.name = model.name
        self._model = model

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        """Returns for each image a verdict on each label."""
        if not labels:
            return [() for _ in images]
        text = fill_template("shows", labels="\n".join(f"{n}. {label}" for n, label in enumerate(labels, start=1)))
        questions = [Question.of(text, image) for image in images]
        answers = self._model.ask_all(questions, lambda answer: parse_verdicts(answer, len(labels)))
        return [(None,) * len(labels) if isinstance(each, UnansweredQuestion) else each for each in answers]


def parse_verdicts(answer: str, count: int) -> tuple[ImageVerdict, ...]:
    """Parses a line such as "1: yes" for each of `count` labels; "unsure" gives None. Raises MalformedAnswer."""
    verdicts = {int(match[1]): _VERDICTS[match[2].lower()] for match in _VERDICT.finditer(answer)}
    if sorted(verdicts) != list(range(1, count + 1)):
        raise MalformedAnswer(f"lines for {sorted(verdicts)} came where 1 to {count} were asked for")
    return tuple(verdicts[number] for number in range(1, count + 1))


class DetectedBoxes(Protocol):
    """The boxes of one label in one image."""

    @property
    def corners(self) -> FloatArray:
        """(boxes, 4): left, top, right and bottom as fractions of the image's width and height."""
        ...


class LabelDetector(Protocol):
    """A detector, such as Grounding DINO."""

    def detect(self, pairs: Sequence[tuple[Pixels, str]]) -> Sequence[DetectedBoxes]:
        """Returns the boxes for each (image, label) pair. Images have equal sizes."""
        ...


class BoxMasker(Protocol):
    """A segmentation model, such as SAM."""

    def masks(self, image: Pixels, groups: Sequence[FloatArray]) -> Sequence[Region]:
        """Returns for each group of boxes, in the format of `DetectedBoxes.corners`, the union of their masks, of the
        size of the image.
        """
        ...


class DetectorJudge:
    """An image shows a label if a detector finds a box for it. Verdicts are never None."""

    def __init__(self, detector: LabelDetector, segmenter: BoxMasker, name: str, size: int):
        """Both models get images resized to `size` x `size`."""
        self.name = name
        self._detector, self._segmenter, self._size = detector, segmenter, size

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        """Returns for each image and label whether there is a box."""
        return [tuple(len(boxes.corners) > 0 for boxes in row) for _, row in self._detect(images, labels)]

    def locate(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[Region]:
        """Returns one mask of `size` x `size` for each image: the union of the masks of all boxes."""
        return [
            self._segmenter.masks(view, [np.concatenate([np.empty((0, 4)), *(boxes.corners for boxes in row)])])[0]
            for view, row in self._detect(images, labels)
        ]

    def _detect(
        self, images: Sequence[EncodedImage], labels: Sequence[str]
    ) -> list[tuple[Pixels, Sequence[DetectedBoxes]]]:
        views = [self._view(image) for image in images]
        boxes = self._detector.detect([(view, label) for view in views for label in labels])
        return [(view, boxes[n * len(labels) : (n + 1) * len(labels)]) for n, view in enumerate(views)]

    def _view(self, image: EncodedImage) -> Pixels:
        resized = image.pil().convert("RGB").resize((self._size, self._size), Image.Resampling.LANCZOS)
        return np.asarray(resized)
