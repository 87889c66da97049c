"""Models of the hub or of a folder, with one message for whatever is wrong with them."""

from collections.abc import Callable
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedModel, ProcessorMixin

from openmaia.errors import UsageError

LOADING = (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError, EOFError)
"""What transformers raises for ids that do not exist, gated or damaged files, and a hub that cannot be reached."""


def load(
    key: str, given: str, kind: str, example: str, model: Callable[..., Any], processor: Callable[..., Any]
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """A model in evaluation mode, float32, in main memory, and its processor.

    key: of the config, for messages. kind: transformers' name of the architecture. model, processor: the
    `from_pretrained` of their classes. Raises UsageError.
    """
    advice = (
        f"give the hub id of a {kind} model, such as {example}, or a folder with its config, weights and processor "
        "(gated models need HF_TOKEN; without a network only folders and cached models load)"
    )
    try:
        architecture = AutoConfig.from_pretrained(given).model_type
    except LOADING as error:
        raise _unusable(key, given, f"cannot be read: {_line(error)}", advice, error) from error
    if architecture != kind:
        raise UsageError(f"{key}={given!r} is a model of type {architecture!r}; {advice}")
    try:
        loaded, report = model(given, dtype=torch.float32, output_loading_info=True)
        prepared = processor(given)
    except LOADING as error:
        raise _unusable(key, given, f"cannot be loaded: {_line(error)}", advice, error) from error
    # Weights that a checkpoint lacks are drawn at random without an error.
    if lacking := sorted(report["missing_keys"]):
        raise UsageError(f"{key}={given!r} lacks {len(lacking)} weights, such as {lacking[0]}; {advice}")
    return loaded.eval().requires_grad_(False), prepared


def placed(key: str, given: str, model: PreTrainedModel, device: torch.device) -> None:
    """Moves a model to its device. Raises UsageError when it does not fit."""
    try:
        model.to(device)  # pyright: ignore[reportArgumentType]
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"{key}={given!r} does not fit on the GPU beside what is there already; give pools.target.num_gpus a larger "
            "share, a smaller model, or a larger GPU",
            detail=str(error),
        ) from error


def _unusable(key: str, given: str, what: str, advice: str, error: Exception) -> UsageError:
    return UsageError(f"{key}={given!r} {what}; {advice}", detail=f"{type(error).__name__}: {error}")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
