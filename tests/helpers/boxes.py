"""torchvision's choice among boxes that overlap, in plain PyTorch, for tests beside a PyTorch that its operators were not built for."""

import sys
from typing import Any

import pytest
import torch
import torchvision
from torchvision.ops import boxes


def has_operators() -> bool:
    try:
        torchvision.ops.nms(torch.zeros(1, 4), torch.ones(1), 0.5)
    except RuntimeError:
        return False
    return True


def select_boxes(given: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """As `torchvision.ops.nms`."""
    overlaps = boxes.box_iou(given, given) > iou_threshold
    is_left = torch.ones(len(given), dtype=torch.bool)
    kept: list[int] = []
    for at in scores.argsort(descending=True, stable=True).tolist():
        if is_left[at]:
            kept.append(at)
            is_left &= ~overlaps[at]
    return torch.tensor(kept, dtype=torch.int64)


def provide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes detectors of two stages run where torchvision lacks its operators."""
    if has_operators():
        return
    for module in (boxes, torchvision.ops):
        monkeypatch.setattr(module, "nms", select_boxes)
    # It pools in plain PyTorch then, and would compile that first, which takes seconds.
    pooling: Any = sys.modules["torchvision.ops.roi_align"]
    monkeypatch.setattr(pooling, "_roi_align", getattr(pooling._roi_align, "__wrapped__", pooling._roi_align))
