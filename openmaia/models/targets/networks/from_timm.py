"""Networks of timm, which include DINO ViT-S/8 and CLIP RN50 of the published MAIA experiments.

timm reads weights from safetensors, by torch.load with weights_only=True, or, for weights of JAX, by numpy without
unpickling. No code in a file is run.
"""

import difflib
from dataclasses import replace
from typing import Any

import timm
import torch
from PIL import Image
from timm.data.config import resolve_model_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from timm.data.transforms_factory import create_transform

from openmaia.core.errors import UsageError
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork, verify
from openmaia.models.targets.unreadable import LOADING_ERRORS

_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def load(name: str, pretrained: bool, **arguments: Any) -> TargetNetwork:
    """Loads a network by its name in timm, or by `hf-hub:ID`. Without `pretrained` its weights are random.

    Raises:
        UsageError: The name is unknown, or the weights cannot be loaded.
    """
    if not pretrained and name.startswith("hf-hub:"):
        raise UsageError(
            f"target.network='timm:{name}' describes a network that only the hub knows, and with target.weights nothing "
            "is downloaded; give one of timm's own names"
        )
    if ":" not in name and not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.0)
        raise UsageError(f"target.network='timm:{name}' is not known to timm; the nearest are {', '.join(near)}")
    if pretrained and ":" not in name and not timm.is_model_pretrained(name):
        raise UsageError(f"timm has no weights for {name!r}; give a checkpoint as target.weights, or random")
    try:
        module = timm.create_model(name, pretrained=pretrained, **arguments)
    except LOADING_ERRORS as error:
        raise UsageError(
            f"target.network='timm:{name}' cannot be loaded: {str(error)[:300]}. If the hub cannot be reached, give a "
            "checkpoint file as target.weights; a gated network needs an accepted licence and HF_TOKEN"
        ) from error
    classes = int(getattr(module, "num_classes", 0))
    labels = _labels(module, classes) if pretrained else ()
    meaning = OutputMeaning.SOFTMAX if classes else OutputMeaning.VALUES
    return TargetNetwork(module=module, preprocess=_preprocess(name, module), labels=labels, output=meaning)


def dino_vits8(pretrained: bool) -> TargetNetwork:
    """Loads DINO's ViT-S/8. Its modules have the same names in timm as in DINO's own code, such as blocks.0.mlp.fc1.

    As in DINO's own code, position embeddings are interpolated for inputs of another size than 224 x 224. If a side of
    the input is not a multiple of 8 pixels, the remaining pixels at the right or bottom edge are ignored.
    """
    network = load("vit_small_patch8_224.dino", pretrained, dynamic_img_size=True)
    # If img_size is set, timm refuses inputs whose sides are not multiples of 8 pixels.
    embedding: Any = network.module.get_submodule("patch_embed")
    embedding.img_size = None
    return network


def clip_rn50(pretrained: bool) -> TargetNetwork:
    """Loads the image encoder of OpenAI's CLIP RN50. Its stages can be named as in OpenAI's code, `layer1` to `layer4`.

    CLIP's preprocessing, which the published MAIA code uses too, scales the shorter side to 224 pixels with bicubic
    resampling and keeps the central square.
    """
    network = load("resnet50_clip.openai", pretrained)
    preprocess = replace(_preprocess("resnet50_clip.openai", network.module), crop=1.0)
    aliases = {f"layer{stage + 1}": f"stages.{stage}" for stage in range(4)}
    return replace(network, preprocess=preprocess, published=preprocess, aliases=aliases, output=OutputMeaning.VALUES)


def _preprocess(name: str, module: torch.nn.Module) -> Preprocess:
    config = resolve_model_data_config(module)
    ours = Preprocess(
        size=tuple(config["input_size"][1:]),
        crop=config["crop_pct"],
        resample=_RESAMPLING.get(config["interpolation"], Image.Resampling.BICUBIC),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        squash=config["crop_mode"] == "squash",
    )
    transform: Any = create_transform(**config, is_training=False)
    return verify(ours, transform, f"timm:{name}")


def _labels(module: torch.nn.Module, classes: int) -> tuple[str, ...]:
    subset = infer_imagenet_subset(module)
    if not subset:
        return ()
    info = ImageNetInfo(subset)
    return tuple(str(info.index_to_description(index)) for index in range(classes))
