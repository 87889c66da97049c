"""Loads detectors and segmenters with transformers."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel, ProcessorMixin

from openmaia.core.errors import UsageError
from openmaia.models.targets.unreadable import LOADING_ERRORS


def load(
    key: str, given: str, kind: str, example: str, model: Callable[..., Any], processor: Callable[..., Any]
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads a detector or segmenter, in evaluation mode and float32 on the CPU, and its processor.

    Args:
        key: The config key that names the model, for messages.
        given: A hub id or a folder.
        kind: The required model type in the config of transformers, such as `sam`.
        example: A valid hub id, for messages.
        model: The method `from_pretrained` of the model class.
        processor: That of the processor class.

    Raises:
        UsageError: The model cannot be loaded, is of another type, or lacks weights.
    """
    advice = (
        f"give the hub id of a {kind} model, such as {example}, or a folder with its config, weights and processor "
        "(gated models need HF_TOKEN; without a network only folders and cached models load)"
    )
    try:
        architecture = AutoConfig.from_pretrained(given).model_type
    except LOADING_ERRORS as error:
        raise _unusable(key, given, "cannot be read", advice, error) from error
    if architecture != kind:
        raise UsageError(f"{key}={given!r} is a model of type {architecture!r}; {advice}")
    try:
        loaded, report = model(given, dtype=torch.float32, output_loading_info=True)
        loaded_processor = processor(given)
    except LOADING_ERRORS as error:
        raise _unusable(key, given, "cannot be loaded", advice, error) from error
    # transformers initialises missing weights at random and does not raise.
    if missing := sorted(report["missing_keys"]):
        raise UsageError(f"{key}={given!r} lacks {len(missing)} weights, such as {missing[0]}; {advice}")
    return loaded.eval().requires_grad_(False), loaded_processor


def _unusable(key: str, given: str, problem: str, advice: str, error: Exception) -> UsageError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return UsageError(f"{key}={given!r} {problem}: {reason}; {advice}", detail=f"{type(error).__name__}: {error}")
