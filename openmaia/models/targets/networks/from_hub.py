"""Image networks of Hugging Face transformers from the hub, its cache or a folder.

Weights are read from safetensors, or by torch.load with weights_only=True. Code that belongs to a model is never run
(trust_remote_code=False).
"""

import pickle
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoModelForImageClassification

from openmaia.core.errors import UsageError
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork, verify

_LOADING_ERRORS = (OSError, ValueError, RuntimeError, KeyError, SafetensorError, pickle.UnpicklingError)


def load(model: str, pretrained: bool) -> TargetNetwork:
    """Loads an image network by its hub id or folder.

    Args:
        pretrained: Otherwise the weights are random. Only the configurations of the network and its preprocessing are
            then read, from the folder or the hub's cache, and nothing is downloaded.

    Raises:
        UsageError: The network cannot be loaded, lacks weights, or has a preprocessing that cannot be reproduced.
    """
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": not pretrained}
    missing: list[str] = []
    try:
        config = AutoConfig.from_pretrained(model, **options)
        processor = AutoImageProcessor.from_pretrained(model, **options)
        classifies = any(name.endswith("ForImageClassification") for name in config.architectures or ())
        kind: Any = AutoModelForImageClassification if classifies else AutoModel
        if pretrained:
            module, missing = _pretrained(kind, model)
        else:
            module = kind.from_config(config, trust_remote_code=False)
    except _LOADING_ERRORS as error:
        raise UsageError(
            f"target.network='hf:{model}' cannot be loaded: {str(error)[:400]}. Give an id that the hub has, or a folder "
            "with config.json, preprocessor_config.json and model.safetensors; a gated model needs an accepted licence "
            "and HF_TOKEN"
        ) from error
    if missing:
        raise UsageError(
            f"target.network='hf:{model}' has no weights for {', '.join(missing[:3])}; they would be random. "
            "Give a complete checkpoint"
        )
    # If the model processes images and texts, only its image encoder is used.
    module = getattr(module, "vision_model", module).float()
    labels: dict[int, str] = {int(index): str(label) for index, label in (config.id2label or {}).items()}
    return TargetNetwork(
        module=module,
        preprocess=_preprocess(model, processor),
        labels=tuple(labels[index] for index in sorted(labels)) if pretrained and classifies else (),
        output=_meaning(config) if classifies else OutputMeaning.VALUES,
    )


def _meaning(config: Any) -> OutputMeaning:
    problem = config.problem_type or ("regression" if config.num_labels == 1 else "")
    meanings = {"regression": OutputMeaning.VALUES, "multi_label_classification": OutputMeaning.SIGMOID}
    return meanings.get(problem, OutputMeaning.SOFTMAX)


def _pretrained(kind: Any, model: str) -> tuple[torch.nn.Module, list[str]]:
    """Returns the model with the names of the weights that are missing in its files."""
    module, report = kind.from_pretrained(
        model, trust_remote_code=False, weights_only=True, dtype=torch.float32, output_loading_info=True
    )
    missing = sorted(report["missing_keys"])
    if missing and all(name.startswith("pooler.") for name in missing):
        # Self-supervised vision transformers are published without the pooling layer of language models.
        module.pooler = None
        missing = []
    return module, missing


def _preprocess(model: str, processor: Any) -> Preprocess:
    size, crop, squash = _geometry(model, processor)
    mean = tuple(processor.image_mean) if _enabled(processor, "do_normalize") else (0.0, 0.0, 0.0)
    std = tuple(processor.image_std) if _enabled(processor, "do_normalize") else (1.0, 1.0, 1.0)
    if len(mean) != 3 or len(std) != 3:
        raise UsageError(f"target.network='hf:{model}' takes images of {len(mean)} channels; expected 3")
    ours = Preprocess(
        size=size, crop=crop, squash=squash, resample=Image.Resampling(int(processor.resample)), mean=mean, std=std
    )

    def theirs(image: Image.Image) -> torch.Tensor:
        return torch.as_tensor(processor(image, return_tensors="pt")["pixel_values"][0])

    return verify(ours, theirs, f"hf:{model}")


def _geometry(model: str, processor: Any) -> tuple[tuple[int, int], float, bool]:
    """`size`, `crop` and `squash` of the `Preprocess` that corresponds to an image processor."""
    size = dict(processor.size or {}) if _enabled(processor, "do_resize") else {}
    cropped = _enabled(processor, "do_center_crop")
    shorter = size.get("shortest_edge")
    fraction = getattr(processor, "crop_pct", None)
    if shorter and cropped:
        window = dict(processor.crop_size)
        return (window["height"], window["width"]), min(window["height"], window["width"]) / shorter, False
    if shorter and fraction:
        # ConvNeXt crops at input sizes below 384, and squashes the whole image from there on.
        return (shorter, shorter), fraction if shorter < 384 else 1.0, shorter >= 384
    if size.get("height") and size.get("width"):
        resized = (size["height"], size["width"])
        if not cropped:
            return resized, 1.0, True
        window = dict(processor.crop_size)
        return (window["height"], window["width"]), window["height"] / resized[0], True
    raise UsageError(f"target.network='hf:{model}' resizes images to {size}; expected a shortest edge or two sides")


def _enabled(processor: Any, step: str) -> bool:
    return bool(getattr(processor, step, False))
