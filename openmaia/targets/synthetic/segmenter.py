"""From boxes to masks: SAM, or the boxes themselves."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from transformers import SamModel, SamProcessor

from openmaia.images import Pixels
from openmaia.targets.hooked import weights_digest
from openmaia.targets.synthetic.detector import Corners
from openmaia.targets.synthetic.loading import load, placed
from openmaia.targets.synthetic.rules import Mask

KEY = "target.segmenter"

BOXES_AT_ONCE = 32
"""Of one picture in one pass of SAM's mask decoder; their masks are 1024 x 1024 floats on their way to pixels."""


class Segmenter(Protocol):
    digest: str

    def masks(self, picture: Pixels, groups: Sequence[Corners]) -> list[Mask]:
        """For each group of boxes the union of what they show, (height, width) of the picture."""
        ...


class BoxSegmenter:
    """The boxes are the masks."""

    digest = "boxes"

    def masks(self, picture: Pixels, groups: Sequence[Corners]) -> list[Mask]:
        height, width = picture.shape[:2]
        return [box_mask(corners, height, width) for corners in groups]


class SamSegmenter:
    """Each square picture is embedded once for all its boxes, and on its own, whatever else is asked in the batch."""

    def __init__(self, model: str, device: torch.device):
        self._device = device
        loaded, processor = load(
            KEY, model, "sam", "facebook/sam-vit-huge", SamModel.from_pretrained, SamProcessor.from_pretrained
        )
        self._model: Any = loaded
        self._image_processor: Any = getattr(processor, "image_processor")  # noqa: B009 - as in the detector
        self.digest = weights_digest(loaded.state_dict().items())
        placed(KEY, model, loaded, device)

    @torch.inference_mode()
    def masks(self, picture: Pixels, groups: Sequence[Corners]) -> list[Mask]:
        """A box in which SAM finds nothing is its own mask, so that what is detected is also somewhere."""
        height, width = picture.shape[:2]
        corners = np.concatenate([np.empty((0, 4)), *groups])
        found = self._each(picture, corners) if len(corners) else np.zeros((0, height, width), dtype=np.bool_)
        for i in np.flatnonzero(~found.any(axis=(1, 2))):
            found[i] = box_mask(corners[i : i + 1], height, width)
        ends = np.cumsum([len(group) for group in groups])
        unions = np.zeros((len(groups), height, width), dtype=np.bool_)
        for union, group, end in zip(unions, groups, ends, strict=True):
            np.logical_or.reduce(found[end - len(group) : end], axis=0, out=union)
        return list(unions)

    def _each(self, picture: Pixels, corners: Corners) -> Mask:
        """One mask per box, (n, height, width)."""
        prepared = self._image_processor(images=[np.array(picture)], return_tensors="pt")
        height, width = (int(side) for side in prepared["reshaped_input_sizes"][0])
        scaled = torch.from_numpy(corners * [width, height, width, height]).float().to(self._device)
        embedding = self._model.get_image_embeddings(prepared["pixel_values"].to(self._device))
        drawn: list[Mask] = []
        for boxes in scaled.split(BOXES_AT_ONCE):
            output = self._model(image_embeddings=embedding, input_boxes=boxes[None], multimask_output=False)
            (masks,) = self._image_processor.post_process_masks(
                output.pred_masks, prepared["original_sizes"], prepared["reshaped_input_sizes"]
            )
            drawn.append(masks[:, 0].cpu().numpy())
        return np.concatenate(drawn)


def box_mask(corners: Corners, height: int, width: int) -> Mask:
    """(height, width): the pixels that the boxes touch, inside the picture; at least one for each box."""
    mask = np.zeros((height, width), dtype=bool)
    for left, top, right, bottom in corners * [width, height, width, height]:
        row, column = min(max(int(top), 0), height - 1), min(max(int(left), 0), width - 1)
        mask[row : max(int(np.ceil(bottom)), row + 1), column : max(int(np.ceil(right)), column + 1)] = True
    return mask
