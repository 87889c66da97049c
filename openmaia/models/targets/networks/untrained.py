"""Makes networks untrained: random weights, and statistics of normalisation layers that fit them."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.images import Pixels
from openmaia.datasets.library import ImageDataset
from openmaia.models.targets.places import noise
from openmaia.models.targets.preprocess import TargetNetwork
from openmaia.models.targets.wrappers import unwrap

_IMAGES = 16


def forget(module: nn.Module) -> None:
    """Gives all modules the random weights with which PyTorch makes them, in place.

    Weights of modules that have none of their own, such as a class token, are shuffled instead.

    Raises:
        UsageError: The network has parts whose weights cannot be drawn again: programs of TorchScript, or quantised ones.
    """
    inner, _ = unwrap(module)
    for name, each in inner.named_modules():
        if isinstance(each, torch.jit.ScriptModule) or "quantized" in type(each).__module__:
            raise UsageError(
                f"target.weights=untrained: {name or 'the network'} is a {type(each).__name__}, whose weights cannot be drawn "
                "again; give the nn.Module from which it was made"
            )
    for each in inner.modules():
        reset = cast(Callable[[], Any] | None, getattr(each, "reset_parameters", None))
        if reset is not None:
            reset()
            continue
        for own in each.parameters(recurse=False):
            with torch.no_grad():
                own.copy_(own.flatten()[torch.randperm(own.numel())].view_as(own))


def normalise(network: TargetNetwork, pictures: Callable[[], ImageDataset | None]) -> None:
    """Sets the means and variances of batch normalisation to those of images, in place.

    Without them the values of an untrained network grow or vanish from layer to layer.

    Args:
        network: An untrained network on the CPU.
        pictures: Opens the dataset, of which the images of the explore split with the smallest digests are used. If
            there is none, noise is used.
    """
    inner, _ = unwrap(network.module)
    # In double precision, because the digest contains the result: rounded, it is the same on every machine.
    copy = deepcopy(inner).double().eval()
    for each in (norms := _norms(copy)):
        each.reset_running_stats()
        each.momentum = None
        each.train()
    if not norms:
        return
    with torch.no_grad():
        copy(torch.stack([_input(network, each) for each in _images(network, pictures())]).double())
        for own, found in zip(_norms(inner), norms, strict=True):
            for name, value in found.named_buffers(recurse=False):
                own.get_buffer(name).copy_(value)


def _norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:  # pyright: ignore[reportPrivateUsage]
    kind = nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]
    return [each for each in module.modules() if isinstance(each, kind) and each.track_running_stats]


def _images(network: TargetNetwork, dataset: ImageDataset | None) -> list[Pixels]:
    photos = sorted(dataset.photos("explore"), key=lambda each: each.digest)[:_IMAGES] if dataset else []
    if not photos:
        return [noise(network.preprocess.size, seed) for seed in range(_IMAGES)]
    return [np.asarray(each.load().convert("RGB")) for each in photos]


def _input(network: TargetNetwork, pixels: Pixels) -> torch.Tensor:
    height, width = network.preprocess.size
    # Of one shape, so that they are one batch.
    view, _ = network.preprocess.view(np.asarray(Image.fromarray(pixels).resize((width, height))))
    return network.preprocess.tensor(view)
