"""Classifiers of torchvision and the preprocessing of their weights.

torchvision unpickles its weight files, which could run code. PyTorch is told to read them with weights_only=True
instead, which fails for such a file.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode

from openmaia.core.errors import UsageError
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork, verify
from openmaia.models.targets.unreadable import LOADING_ERRORS

PUBLISHED_WEIGHTS = {"resnet152": "IMAGENET1K_V1"}
"""Those of the published MAIA experiments are our default, although torchvision's default is newer."""

_RESAMPLING = {
    InterpolationMode.NEAREST: Image.Resampling.NEAREST,
    InterpolationMode.BILINEAR: Image.Resampling.BILINEAR,
    InterpolationMode.BICUBIC: Image.Resampling.BICUBIC,
}


def names() -> list[str]:
    """Returns the names of all classifiers of torchvision."""
    return torchvision.models.list_models(module=torchvision.models)


def load(name: str, pretrained: bool) -> TargetNetwork:
    """Loads a classifier by its name and optionally that of its weights, such as `resnet18@IMAGENET1K_V1`.

    Args:
        pretrained: Otherwise the weights are random, and their name only selects the preprocessing and properties of
            the architecture, such as the number of classes.

    Raises:
        UsageError: The weights are unknown or cannot be downloaded.
    """
    plain, _, chosen = name.partition("@")
    weights = named_weights(plain, chosen or PUBLISHED_WEIGHTS.get(plain, "DEFAULT"))
    preprocess = _preprocess(name, weights.transforms())
    if not pretrained:
        return TargetNetwork(module=_architecture(plain, weights), preprocess=preprocess, output=OutputMeaning.SOFTMAX)
    labels = tuple(weights.meta["categories"])
    module = downloaded(plain, weights)
    return TargetNetwork(module=module, preprocess=preprocess, labels=labels, output=OutputMeaning.SOFTMAX)


def downloaded(name: str, weights: Any) -> torch.nn.Module:
    """Returns a model of torchvision with its weights. Raises UsageError if they cannot be downloaded."""
    try:
        with _weights_only():
            return torchvision.models.get_model(name, weights=weights, progress=False)
    except LOADING_ERRORS as error:
        raise UsageError(
            f"target.network={name!r}: its weights cannot be loaded from {weights.url} ({str(error)[:200]}); put that file "
            "on this machine and give it as target.weights"
        ) from error


@contextmanager
def _weights_only() -> Generator[None]:
    # torchvision has no argument for it.
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def named_weights(name: str, chosen: str) -> Any:
    """Returns the weights of this name that torchvision offers for a model. Raises UsageError if there are none."""
    offered = torchvision.models.get_model_weights(name)
    if chosen not in offered.__members__:
        raise UsageError(
            f"target.network='torchvision:{name}@{chosen}': there are no such weights; expected one of "
            f"{', '.join(offered.__members__)}"
        )
    return offered[chosen]


def _architecture(name: str, weights: Any) -> torch.nn.Module:
    """With random weights, as those weights need it."""
    arguments: dict[str, Any] = {"num_classes": len(weights.meta["categories"])}
    if name.startswith("vit_"):
        arguments["image_size"] = weights.meta["min_size"][0]
    if name == "maxvit_t":
        arguments["input_size"] = weights.meta["min_size"]
    if name in ("googlenet", "inception_v3"):
        arguments |= {"transform_input": True, "init_weights": False}
    return torchvision.models.get_model(name, weights=None, **arguments)


def _preprocess(name: str, transforms: Any) -> Preprocess:
    # torchvision scales the shorter side to resize_size and keeps the central crop_size; `Preprocess` does both in one
    # step.
    crop, resize = transforms.crop_size[0], transforms.resize_size[0]
    ours = Preprocess(
        size=(crop, crop),
        crop=crop / resize,
        resample=_RESAMPLING[transforms.interpolation],
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
    )
    return verify(ours, transforms, name)
