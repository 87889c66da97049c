"""Converts boxes to masks with SAM (Kirillov et al. 2023, arXiv:2304.02643), or by filling the boxes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from transformers import SamModel, SamProcessor

from openmaia.core.images import Pixels
from openmaia.models.device import default_device, move_to_device
from openmaia.models.targets.state import weights_digest
from openmaia.models.targets.synthetic.detector import BoxCorners
from openmaia.models.targets.synthetic.loading import load
from openmaia.models.targets.synthetic.rules import ConceptMask

_KEY = "target.segmenter"

# Of SAM's mask decoder: each mask has 1024 x 1024 floats.
BOXES_PER_PASS = 32


class BoxSegmenter:
    """Uses the boxes of detected objects themselves as masks."""

    digest = "boxes"

    def masks(self, image: Pixels, groups: Sequence[BoxCorners]) -> list[ConceptMask]:
        """Returns a mask of shape (height, width) for each group, the boxes of one concept: their union."""
        height, width = image.shape[:2]
        return [draw_boxes(corners, height, width) for corners in groups]


class SamSegmenter:
    """Finds the objects inside boxes with SAM."""

    def __init__(self, model: str, device: torch.device | None = None):
        """Loads a model from the hub or a folder. Raises UsageError if it cannot be loaded or is not a SAM."""
        self._device = device or default_device()
        loaded, processor = load(
            _KEY, model, "sam", "facebook/sam-vit-huge", SamModel.from_pretrained, SamProcessor.from_pretrained
        )
        self._model: Any = loaded
        self._image_processor: Any = getattr(processor, "image_processor")  # noqa: B009 - as in the detector
        self.digest = weights_digest(loaded.state_dict().items())
        move_to_device(loaded, self._device, f"{_KEY}={model!r}")

    @torch.inference_mode()
    def masks(self, image: Pixels, groups: Sequence[BoxCorners]) -> list[ConceptMask]:
        """As `BoxSegmenter.masks`. Where SAM finds nothing, the box is its mask: every detection has a position."""
        height, width = image.shape[:2]
        corners = np.concatenate([np.empty((0, 4)), *groups])
        masks = self._segment(image, corners) if len(corners) else np.zeros((0, height, width), dtype=np.bool_)
        for i in np.flatnonzero(~masks.any(axis=(1, 2))):
            masks[i] = draw_boxes(corners[i : i + 1], height, width)
        starts = np.cumsum([0, *(len(group) for group in groups)])
        return [np.any(masks[start:end], axis=0) for start, end in pairwise(starts)]

    def _segment(self, image: Pixels, corners: BoxCorners) -> ConceptMask:
        """Shape (boxes, height, width)."""
        prepared = self._image_processor(images=[np.array(image)], return_tensors="pt")
        height, width = (int(side) for side in prepared["reshaped_input_sizes"][0])
        scaled = torch.from_numpy(corners * [width, height, width, height]).float().to(self._device)
        # Once for all boxes of an image, and not in a batch, so that its masks do not depend on other images.
        embedding = self._model.get_image_embeddings(prepared["pixel_values"].to(self._device))
        parts: list[ConceptMask] = []
        for boxes in scaled.split(BOXES_PER_PASS):
            output = self._model(image_embeddings=embedding, input_boxes=boxes[None], multimask_output=False)
            (masks,) = self._image_processor.post_process_masks(
                output.pred_masks, prepared["original_sizes"], prepared["reshaped_input_sizes"]
            )
            parts.append(masks[:, 0].cpu().numpy())
        return np.concatenate(parts)


def draw_boxes(corners: BoxCorners, height: int, width: int) -> ConceptMask:
    """Returns a mask of shape (height, width), true at each pixel that a box touches: at least one for each box."""
    mask = np.zeros((height, width), dtype=bool)
    for left, top, right, bottom in corners * [width, height, width, height]:
        row, column = min(max(int(top), 0), height - 1), min(max(int(left), 0), width - 1)
        mask[row : max(int(np.ceil(bottom)), row + 1), column : max(int(np.ceil(right)), column + 1)] = True
    return mask
