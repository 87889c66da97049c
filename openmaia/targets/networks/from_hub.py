"""Image networks of Hugging Face, from the hub, its cache or a folder.

transformers reads safetensors, or torch.load with weights_only=True, which from_pretrained is told here; code that
comes with a model is never run (trust_remote_code=False).
"""

import pickle
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoModelForImageClassification

from openmaia.errors import UsageError
from openmaia.targets.preprocess import Network, Preprocess, agreeing

UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, SafetensorError, pickle.UnpicklingError)


def any_network(model: str, own: bool) -> Network:
    """model: an id of the hub, or a folder. own: with its weights; otherwise only its configuration is read, and
    nothing is downloaded."""
    shared: dict[str, Any] = {"trust_remote_code": False, "local_files_only": not own}
    try:
        config = AutoConfig.from_pretrained(model, **shared)
        processor = AutoImageProcessor.from_pretrained(model, **shared)
        classifies = any(name.endswith("ForImageClassification") for name in config.architectures or ())
        kind = AutoModelForImageClassification if classifies else AutoModel
        module, missing = _with_weights(kind, model) if own else (_random(kind, config), [])
    except UNREADABLE as error:
        raise UsageError(
            f"target.network='hf:{model}' cannot be had: {str(error)[:400]}. Give an id that the hub has, or a folder "
            "with config.json, preprocessor_config.json and model.safetensors; a gated model needs an accepted licence "
            "and HF_TOKEN"
        ) from error
    if missing:
        raise UsageError(
            f"target.network='hf:{model}' has no weights for {', '.join(missing[:3])}; they would be random. "
            "Give a complete checkpoint"
        )
    # Of a model of images and texts, the part that sees.
    module = getattr(module, "vision_model", module).float()
    labels: dict[int, str] = {int(index): str(label) for index, label in (config.id2label or {}).items()}
    return Network(
        module=module,
        preprocess=_preprocess(model, processor),
        labels=tuple(labels[index] for index in sorted(labels)) if own and classifies else (),
        classifies=classifies,
    )


def _random(kind: Any, config: Any) -> torch.nn.Module:
    return kind.from_config(config, trust_remote_code=False)


def _with_weights(kind: Any, model: str) -> tuple[torch.nn.Module, list[str]]:
    """The model, and the names of the weights that its files do not have."""
    module, report = kind.from_pretrained(
        model, trust_remote_code=False, weights_only=True, dtype=torch.float32, output_loading_info=True
    )
    missing = sorted(report["missing_keys"])
    if missing and all(name.startswith("pooler.") for name in missing):
        # Self-supervised vision transformers are published without the pooling layer of the text models.
        module.pooler = None
        missing = []
    return module, missing


def _preprocess(model: str, processor: Any) -> Preprocess:
    size, crop, squash = _geometry(model, processor)
    mean = tuple(processor.image_mean) if _on(processor, "do_normalize") else (0.0, 0.0, 0.0)
    std = tuple(processor.image_std) if _on(processor, "do_normalize") else (1.0, 1.0, 1.0)
    if len(mean) != 3 or len(std) != 3:
        raise UsageError(f"target.network='hf:{model}' takes pictures of {len(mean)} channels; expected 3")
    ours = Preprocess(
        size=size, crop=crop, squash=squash, resample=Image.Resampling(int(processor.resample)), mean=mean, std=std
    )

    def theirs(image: Image.Image) -> torch.Tensor:
        return torch.as_tensor(processor(image, return_tensors="pt")["pixel_values"][0])

    return agreeing(ours, theirs, f"hf:{model}")


def _geometry(model: str, processor: Any) -> tuple[tuple[int, int], float, bool]:
    """(input size, share kept, whether proportions are lost)."""
    size = dict(processor.size or {}) if _on(processor, "do_resize") else {}
    cropped = _on(processor, "do_center_crop")
    shorter = size.get("shortest_edge")
    share = getattr(processor, "crop_pct", None)
    if shorter and cropped:
        window = dict(processor.crop_size)
        return (window["height"], window["width"]), min(window["height"], window["width"]) / shorter, False
    if shorter and share:
        # ConvNeXt: pictures below 384 are cropped, larger ones squeezed whole.
        return (shorter, shorter), share if shorter < 384 else 1.0, shorter >= 384
    if size.get("height") and size.get("width"):
        resized = (size["height"], size["width"])
        if not cropped:
            return resized, 1.0, True
        window = dict(processor.crop_size)
        return (window["height"], window["width"]), window["height"] / resized[0], True
    raise UsageError(f"target.network='hf:{model}' resizes pictures to {size}; expected a shortest edge or two sides")


def _on(processor: Any, step: str) -> bool:
    return bool(getattr(processor, step, False))
