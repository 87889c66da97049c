"""Classifiers of torchvision, with the transforms of their weights.

torchvision itself reads its files with an unpickler that could run code. So a file is downloaded, its hash checked, and
read with weights_only=True first: a file that needs code fails there, before torchvision gets to see it.
"""

import pickle
from typing import Any

import torch
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode

from openmaia.errors import UsageError
from openmaia.targets.preprocess import Network, Preprocess, agreeing

PAPERS = {"resnet152": "IMAGENET1K_V1"}
"""Networks of the published experiments keep the weights of those, whatever torchvision prefers today."""

RESAMPLING = {
    InterpolationMode.NEAREST: Image.Resampling.NEAREST,
    InterpolationMode.BILINEAR: Image.Resampling.BILINEAR,
    InterpolationMode.BICUBIC: Image.Resampling.BICUBIC,
}


def names() -> list[str]:
    return torchvision.models.list_models(module=torchvision.models)


def any_network(name: str, own: bool) -> Network:
    """`resnet18` or `resnet18@IMAGENET1K_V1`. own: with these weights, else at the values torchvision starts from."""
    plain, _, chosen = name.partition("@")
    weights = _weights(plain, chosen or PAPERS.get(plain, "DEFAULT"))
    preprocess = _preprocess(name, weights.transforms())
    if not own:
        return Network(module=_architecture(plain, weights), preprocess=preprocess)
    try:
        weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
        module = torchvision.models.get_model(plain, weights=weights, progress=False)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise UsageError(
            f"target.network={name!r}: its weights cannot be had from {weights.url} ({str(error)[:200]}); put that file "
            "on this machine and give it as target.weights"
        ) from error
    return Network(module=module, preprocess=preprocess, labels=tuple(weights.meta["categories"]))


def _weights(name: str, chosen: str) -> Any:
    offered = torchvision.models.get_model_weights(name)
    if chosen not in offered.__members__:
        raise UsageError(
            f"target.network='torchvision:{name}@{chosen}': there are no such weights; expected one of "
            f"{', '.join(offered.__members__)}"
        )
    return offered[chosen]


def _architecture(name: str, weights: Any) -> torch.nn.Module:
    """As torchvision builds it for these weights."""
    arguments: dict[str, Any] = {"num_classes": len(weights.meta["categories"])}
    if name.startswith("vit_"):
        arguments["image_size"] = weights.meta["min_size"][0]
    if name == "maxvit_t":
        arguments["input_size"] = weights.meta["min_size"]
    if name in ("googlenet", "inception_v3"):
        arguments |= {"transform_input": True, "init_weights": False}
    return torchvision.models.get_model(name, weights=None, **arguments)


def _preprocess(name: str, transforms: Any) -> Preprocess:
    """Shorter side to resize_size, then the middle crop_size: our one step of the two takes crop / resize of the
    shorter side."""
    crop, resize = transforms.crop_size[0], transforms.resize_size[0]
    red, green, blue = transforms.mean
    red_std, green_std, blue_std = transforms.std
    ours = Preprocess(
        size=(crop, crop),
        crop=crop / resize,
        resample=RESAMPLING[transforms.interpolation],
        mean=(red, green, blue),
        std=(red_std, green_std, blue_std),
    )
    return agreeing(ours, transforms, name)
