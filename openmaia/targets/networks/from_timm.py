"""Networks of timm, and the published DINO ViT-S/8 and CLIP RN50, which timm has under other names.

timm reads safetensors, or torch.load with weights_only=True, which is its default for every source of weights; weights
of JAX come as arrays from numpy's load, which refuses pickles unless told otherwise.
"""

import difflib
import pickle
from dataclasses import replace
from typing import Any

import timm
import torch
from PIL import Image
from safetensors import SafetensorError
from timm.data.config import resolve_model_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from timm.data.transforms_factory import create_transform

from openmaia.errors import UsageError
from openmaia.targets.preprocess import Network, Preprocess, agreeing

RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def any_network(name: str, own: bool, **arguments: Any) -> Network:
    """own: with the weights that timm has under this name."""
    if not own and name.startswith("hf-hub:"):
        raise UsageError(
            f"target.network='timm:{name}' describes a network that only the hub knows, and with target.weights nothing "
            "is downloaded; give one of timm's own names"
        )
    if ":" not in name and not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.0)
        raise UsageError(f"target.network='timm:{name}' is not known to timm; the nearest are {', '.join(near)}")
    if own and ":" not in name and not timm.is_model_pretrained(name):
        raise UsageError(f"timm has no weights for {name!r}; give a checkpoint as target.weights, or random")
    try:
        module = timm.create_model(name, pretrained=own, **arguments)
    except (OSError, RuntimeError, ValueError, SafetensorError, pickle.UnpicklingError) as error:
        raise UsageError(
            f"target.network='timm:{name}' cannot be had: {str(error)[:300]}. Where the hub cannot be reached, give a "
            "checkpoint file as target.weights; a gated network needs an accepted licence and HF_TOKEN"
        ) from error
    classes = int(getattr(module, "num_classes", 0))
    labels = _labels(module, classes) if own else ()
    return Network(module=module, preprocess=_preprocess(name, module), labels=labels, classifies=classes > 0)


def dino_vits8(own: bool) -> Network:
    """DINO's ViT-S/8 has the same module names in timm (blocks.N.mlp.fc1).

    As in the published code, inputs of other proportions interpolate the position embeddings, and patches that an input
    does not fill lose a strip at its end.
    """
    network = any_network("vit_small_patch8_224.dino", own, dynamic_img_size=True)
    # With a size, timm refuses an input that 8 x 8 patches do not fill.
    embedding: Any = network.module.get_submodule("patch_embed")
    embedding.img_size = None
    return network


def clip_rn50(own: bool) -> Network:
    """The visual tower of OpenAI's RN50, under the layer names it was published with, and with CLIP's own preprocessing:
    shorter side to 224, bicubic, middle square. The published code keeps that one too."""
    network = any_network("resnet50_clip.openai", own)
    preprocess = replace(network.preprocess, crop=1.0)
    aliases = {f"layer{stage + 1}": f"stages.{stage}" for stage in range(4)}
    return replace(network, preprocess=preprocess, published=preprocess, aliases=aliases, classifies=False)


def _preprocess(name: str, module: torch.nn.Module) -> Preprocess:
    config = resolve_model_data_config(module)
    _, height, width = config["input_size"]
    red, green, blue = config["mean"]
    red_std, green_std, blue_std = config["std"]
    ours = Preprocess(
        size=(height, width),
        crop=config["crop_pct"],
        resample=RESAMPLING.get(config["interpolation"], Image.Resampling.BICUBIC),
        mean=(red, green, blue),
        std=(red_std, green_std, blue_std),
        squash=config["crop_mode"] == "squash",
    )
    transform: Any = create_transform(**config, is_training=False)
    return agreeing(ours, transform, f"timm:{name}")


def _labels(module: torch.nn.Module, classes: int) -> tuple[str, ...]:
    subset = infer_imagenet_subset(module)
    if not subset:
        return ()
    info = ImageNetInfo(subset)
    return tuple(str(info.index_to_description(index)) for index in range(classes))
