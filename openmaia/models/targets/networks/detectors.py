"""Detection networks, whose output has the largest score of each class in an image."""

from typing import Any

import torch
from torch import nn

from openmaia.core.errors import UsageError

UNNAMED = ("N/A", "__background__")
"""Names with which libraries fill the places of classes that they do not have."""

OUTPUTS = "output: the largest score of each class among the detector's {what}, without maps"
"""For `TargetNetwork.outputs`. Boxes may be anywhere, so that there is no fixed place that a score belongs to."""


def class_names(labels: dict[int, str]) -> tuple[str, ...]:
    """Returns the names of classes by index; empty for those that there are not."""
    return tuple("" if labels[index] in UNNAMED else labels[index] for index in sorted(labels))


def largest_log_odds(logits: torch.Tensor, no_object: int | None) -> torch.Tensor:
    """Returns logits whose sigmoid is the largest score of each class in an image, shape (images, classes).

    Args:
        logits: Shape (images, boxes, classes), as the detector gives them.
        no_object: The place of the class that stands for no object. Scores are then a softmax, and this class is left out;
            None: each score is a sigmoid.
    """
    if no_object is None:
        return logits.amax(dim=1)
    kept = [index for index in range(logits.shape[2]) if index != no_object]
    return log_odds(logits.double().log_softmax(dim=2))[:, :, kept].amax(dim=1).float()


def log_odds(logarithms: torch.Tensor) -> torch.Tensor:
    """Returns the log-odds of probabilities, given their logarithms in double precision, in which 1 - p keeps its digits."""
    return logarithms - (-logarithms.expm1()).clamp_min(1e-30).log()


def needs_values(module: nn.Module) -> bool:
    """Returns whether a detector selects boxes by their values before it ends, so that shapes alone do not take it through
    a pass."""
    return hasattr(module, "rpn")


def score_classes(module: nn.Module, model: str, classes: int) -> None:
    """Makes a detector of transformers return log-odds of its classes, shape (images, classes), in place. Its layers keep
    their names.

    The last class stands for no object in DETR and in what follows it (`post_process_object_detection` of its image
    processor); there is none in those that were trained with a focal loss.
    """

    def scored(_module: nn.Module, _inputs: Any, output: Any) -> torch.Tensor:
        logits = output.logits
        if logits.ndim != 3 or logits.shape[2] not in (classes, classes + 1):
            raise UsageError(
                f"target.network='hf:{model}' gives class scores of the shape {tuple(logits.shape)}; expected (images, "
                f"queries, {classes} or {classes + 1})"
            )
        return largest_log_odds(logits, classes if logits.shape[2] > classes else None)

    module.register_forward_hook(scored)
