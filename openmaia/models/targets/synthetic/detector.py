"""Detects objects of any description in images with Grounding DINO (Liu et al. 2023, arXiv:2303.05499)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

from openmaia.core.images import Pixels
from openmaia.models.device import default_device, move_to_device
from openmaia.models.targets.responses import rounded
from openmaia.models.targets.state import weights_digest
from openmaia.models.targets.synthetic.loading import load

_KEY = "target.detector"

BoxCorners = npt.NDArray[np.float64]
"""Left, top, right, bottom as fractions of the image's sides, (boxes, 4). A box may extend beyond the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """The boxes in which one concept was detected in one image."""

    scores: tuple[float, ...]
    """Between 0 and 1, rounded to 5 significant digits."""
    corners: BoxCorners
    """Rounded to 4 decimals."""


class GroundingDino:
    """Detects concepts in images with Grounding DINO. Several (image, concept) pairs share a forward pass.

    Each text query is one concept. All queries of a pass have the same number of tokens, so that no padding is needed
    and no result depends on the other pairs of its batch, except for the rounding of float32.
    """

    def __init__(self, model: str, threshold: float, device: torch.device | None = None, *, batch: int = 0):
        """Loads a model from the hub or a folder.

        Args:
            threshold: Only boxes with a score above it are returned.
            batch: Pairs per forward pass, 0 for the default of the device.

        Raises:
            UsageError: The model cannot be loaded or is not a Grounding DINO.
        """
        self._threshold, self._device = threshold, device or default_device()
        self._batch = batch or (16 if self._device.type == "cuda" else 1)
        self._model, processor = load(
            _KEY,
            model,
            "grounding-dino",
            "IDEA-Research/grounding-dino-tiny",
            AutoModelForZeroShotObjectDetection.from_pretrained,
            AutoProcessor.from_pretrained,
        )
        # The class of the processor defines these attributes dynamically.
        self._tokenizer: Any = getattr(processor, "tokenizer")  # noqa: B009
        self._image_processor: Any = getattr(processor, "image_processor")  # noqa: B009
        self.digest = weights_digest(self._model.state_dict().items())
        move_to_device(self._model, self._device, f"{_KEY}={model!r}")

    def detect(self, pairs: Sequence[tuple[Pixels, str]]) -> list[Detections]:
        """Returns the detections for each (image, concept). All images must have the same size. They are not resized."""
        tokens = [self._tokens(concept) for _, concept in pairs]
        # The sort is stable: pairs of one image stay together, so that a pass preprocesses few images.
        pending = sorted(range(len(pairs)), key=lambda i: len(tokens[i]))
        detections: dict[int, Detections] = {}
        while pending:
            length = len(tokens[pending[0]])
            batch = [i for i in pending[: self._batch] if len(tokens[i]) == length]
            pending = pending[len(batch) :]
            outputs = self._forward([pairs[i][0] for i in batch], [tokens[i] for i in batch])
            detections.update(zip(batch, outputs, strict=True))
        return [detections[i] for i in range(len(pairs))]

    def _tokens(self, concept: str) -> list[int]:
        return self._tokenizer(f"{concept.lower()}.")["input_ids"]

    @torch.inference_mode()
    def _forward(self, images: list[Pixels], tokens: list[list[int]]) -> list[Detections]:
        distinct = {id(image): image for image in images}
        prepared = self._image_processor(
            images=[np.array(image) for image in distinct.values()], do_resize=False, return_tensors="pt"
        )
        rows = {key: row for row, key in enumerate(distinct)}
        output = self._model(
            pixel_values=prepared["pixel_values"][[rows[id(image)] for image in images]].to(self._device),
            input_ids=torch.tensor(tokens, device=self._device),
        )
        scores = output.logits.sigmoid().amax(dim=-1).double().cpu().numpy()
        boxes = output.pred_boxes.double().cpu().numpy()
        return [self._above_threshold(*pair) for pair in zip(scores, boxes, strict=True)]

    def _above_threshold(self, scores: npt.NDArray[np.float64], boxes: npt.NDArray[np.float64]) -> Detections:
        """`boxes`: centre and size as fractions of the image's sides, shape (boxes, 4)."""
        rounded_scores = [rounded(score) for score in scores]
        kept = [i for i, score in enumerate(rounded_scores) if score > self._threshold]
        centres, sizes = boxes[kept, :2], boxes[kept, 2:]
        corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)
        return Detections(scores=tuple(rounded_scores[i] for i in kept), corners=corners.round(4))
