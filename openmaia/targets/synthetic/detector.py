"""Grounding DINO: where a concept is in a picture, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

from openmaia.images import Pixels
from openmaia.targets.hooked import rounded, weights_digest
from openmaia.targets.synthetic.loading import load, placed

KEY = "target.detector"

Corners = npt.NDArray[np.float64]
"""(n, 4): left, top, right, bottom of boxes as shares of the picture's sides. A box may reach beyond the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """scores: (n,) between 0 and 1, 5 significant digits. corners: (n, 4), 4 decimals."""

    scores: tuple[float, ...]
    corners: Corners


class Detector:
    """Answers (picture, concept) pairs, many in one forward pass.

    A query holds one concept. Queries of one pass have equally many tokens and pictures equally many pixels, so nothing
    is padded and no answer depends on its neighbours, up to the rounding of float32.
    """

    def __init__(self, model: str, threshold: float, device: torch.device, *, batch: int = 0):
        """threshold: boxes with a score above it are kept. batch: pairs of one forward pass, 0 for what suits the
        device. Raises UsageError."""
        self._threshold, self._device = threshold, device
        self._batch = batch or (16 if device.type == "cuda" else 1)
        self._model, processor = load(
            KEY,
            model,
            "grounding-dino",
            "IDEA-Research/grounding-dino-tiny",
            AutoModelForZeroShotObjectDetection.from_pretrained,
            AutoProcessor.from_pretrained,
        )
        self._tokenizer: Any = getattr(processor, "tokenizer")  # noqa: B009 - set by the class of the processor
        self._image_processor: Any = getattr(processor, "image_processor")  # noqa: B009
        self.digest = weights_digest(self._model.state_dict().items())
        placed(KEY, model, self._model, device)

    def detect(self, pairs: Sequence[tuple[Pixels, str]]) -> list[Boxes]:
        """Pictures of one size, not resized, each with a concept."""
        tokens = [self._tokens(concept) for _, concept in pairs]
        # Pairs of one picture come one after another, so that a pass prepares few pictures.
        order = sorted(range(len(pairs)), key=lambda i: len(tokens[i]))
        found: dict[int, Boxes] = {}
        while order:
            length = len(tokens[order[0]])
            chosen = [i for i in order[: self._batch] if len(tokens[i]) == length]
            order = order[len(chosen) :]
            answers = self._forward([pairs[i][0] for i in chosen], [tokens[i] for i in chosen])
            found.update(zip(chosen, answers, strict=True))
        return [found[i] for i in range(len(pairs))]

    def _tokens(self, concept: str) -> list[int]:
        return self._tokenizer(f"{concept.lower()}.")["input_ids"]

    @torch.inference_mode()
    def _forward(self, pictures: list[Pixels], tokens: list[list[int]]) -> list[Boxes]:
        distinct = {id(picture): picture for picture in pictures}
        prepared = self._image_processor(
            images=[np.array(each) for each in distinct.values()], do_resize=False, return_tensors="pt"
        )
        rows = {key: row for row, key in enumerate(distinct)}
        output = self._model(
            pixel_values=prepared["pixel_values"][[rows[id(picture)] for picture in pictures]].to(self._device),
            input_ids=torch.tensor(tokens, device=self._device),
        )
        scores = output.logits.sigmoid().amax(dim=-1).double().cpu().numpy()
        boxes = output.pred_boxes.double().cpu().numpy()
        return [self._kept(*answer) for answer in zip(scores, boxes, strict=True)]

    def _kept(self, scores: npt.NDArray[np.float64], boxes: npt.NDArray[np.float64]) -> Boxes:
        """scores: (queries,). boxes: (queries, 4), centre and size as shares of the picture's sides."""
        exact = [rounded(score) for score in scores]
        kept = [i for i, score in enumerate(exact) if score > self._threshold]
        centres, sizes = boxes[kept, :2], boxes[kept, 2:]
        corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)
        return Boxes(scores=tuple(exact[i] for i in kept), corners=corners.round(4))
