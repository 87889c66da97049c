"""Image networks of Hugging Face transformers from the hub, its cache or a folder.

Weights are read from safetensors, or by torch.load with weights_only=True. Code that belongs to a model is never run
(trust_remote_code=False).
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForObjectDetection,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES

from openmaia.core.errors import UsageError
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.networks import detectors
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork, verify
from openmaia.models.targets.unreadable import LOADING_ERRORS

# Widths and heights of images whose sides are rounded, and of which the last two are too long for some detectors.
_SHAPES = ((500, 333), (341, 487), (900, 300), (123, 511))


def load(model: str, pretrained: bool) -> TargetNetwork:
    """Loads an image network by its hub id or folder.

    Args:
        pretrained: Otherwise the weights are random. Only the configurations of the network and its preprocessing are
            then read, from the folder or the hub's cache, and nothing is downloaded.

    Raises:
        UsageError: The network cannot be loaded, lacks weights, or has a preprocessing that cannot be reproduced.
    """
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": not pretrained}
    with explaining(model):
        config = AutoConfig.from_pretrained(model, **options)
        processor = AutoImageProcessor.from_pretrained(model, **options)
        kind = _kind(config)
        module = load_module(kind, model, config, pretrained)
    labels: dict[int, str] = {int(index): str(label) for index, label in (config.id2label or {}).items()}
    preprocess = read_preprocess(model, processor)
    if kind is AutoModelForObjectDetection:
        detectors.score_classes(module, model, len(labels))
        return TargetNetwork(
            module=module.float(),
            preprocess=preprocess,
            labels=detectors.class_names(labels) if pretrained else (),
            output=OutputMeaning.SIGMOID,
            outputs=detectors.OUTPUTS.format(what="queries"),
        )
    classifies = kind is AutoModelForImageClassification
    # If the model processes images and texts, only its image encoder is used.
    return TargetNetwork(
        module=getattr(module, "vision_model", module).float(),
        preprocess=preprocess,
        labels=tuple(labels[index] for index in sorted(labels)) if pretrained and classifies else (),
        output=_meaning(config) if classifies else OutputMeaning.VALUES,
    )


def _kind(config: Any) -> Any:
    names = tuple(config.architectures or ())
    if any(name.endswith("ForImageClassification") for name in names):
        return AutoModelForImageClassification
    # Without those that take texts, which have architectures of such names, too.
    if MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES.get(config.model_type) in names:
        return AutoModelForObjectDetection
    return AutoModel


def _meaning(config: Any) -> OutputMeaning:
    problem = config.problem_type or ("regression" if config.num_labels == 1 else "")
    meanings = {"regression": OutputMeaning.VALUES, "multi_label_classification": OutputMeaning.SIGMOID}
    return meanings.get(problem, OutputMeaning.SOFTMAX)


@contextmanager
def explaining(model: str) -> Generator[None]:
    """Raises UsageError in place of what transformers raises for a model that it cannot load."""
    try:
        yield
    except UsageError:
        raise
    except LOADING_ERRORS as error:
        raise UsageError(
            f"target.network='hf:{model}' cannot be loaded: {str(error)[:400]}. Give an id that the hub has, or a folder "
            "with config.json, preprocessor_config.json and model.safetensors; a gated model needs an accepted licence "
            "and HF_TOKEN"
        ) from error


def load_module(kind: Any, model: str, config: Any, pretrained: bool) -> torch.nn.Module:
    """Loads a model by an auto class of transformers, in float32. Without `pretrained` its weights are random.

    Raises:
        UsageError: The files lack weights of the model.
    """
    if not pretrained:
        return kind.from_config(config, trust_remote_code=False)
    module, report = kind.from_pretrained(
        model, trust_remote_code=False, weights_only=True, dtype=torch.float32, output_loading_info=True
    )
    missing = sorted(report["missing_keys"])
    if missing and all(name.startswith("pooler.") for name in missing):
        # Self-supervised vision transformers are published without the pooling layer of language models.
        module.pooler = None
    elif missing:
        raise UsageError(
            f"target.network='hf:{model}' has no weights for {', '.join(missing[:3])}; they would be random. "
            "Give a complete checkpoint"
        )
    return module


def read_preprocess(model: str, processor: Any) -> Preprocess:
    """Returns what an image processor of transformers does. Raises UsageError if it cannot be reproduced."""
    mean = tuple(processor.image_mean) if _enabled(processor, "do_normalize") else (0.0, 0.0, 0.0)
    std = tuple(processor.image_std) if _enabled(processor, "do_normalize") else (1.0, 1.0, 1.0)
    if len(mean) != 3 or len(std) != 3:
        raise UsageError(f"target.network='hf:{model}' takes images of {len(mean)} channels; expected 3")
    resample = Image.Resampling(int(processor.resample))
    ours = Preprocess(**_geometry(model, processor), resample=resample, mean=mean, std=std)

    def theirs(image: Image.Image) -> torch.Tensor:
        return torch.as_tensor(processor(image, return_tensors="pt")["pixel_values"][0])

    if ours.longest:
        ours = _with_sides(ours, theirs)
    return verify(ours, theirs, f"hf:{model}")


def _with_sides(ours: Preprocess, theirs: Callable[[Image.Image], torch.Tensor]) -> Preprocess:
    """With the multiple to which a detector's processor rounds the sides, which its configuration does not say."""
    images = [Image.new("RGB", shape) for shape in _SHAPES]
    expected = [tuple(theirs(image).shape[1:]) for image in images]
    for multiple in (1, 16, 32):
        found = replace(ours, multiple=multiple)
        if [found.view(np.asarray(image))[0].shape[:2] for image in images] == expected:
            return found
    return ours  # which `verify` refuses


def _geometry(model: str, processor: Any) -> dict[str, Any]:
    """The arguments of the `Preprocess` that corresponds to an image processor, apart from its colours."""
    size = dict(processor.size or {}) if _enabled(processor, "do_resize") else {}
    cropped = _enabled(processor, "do_center_crop")
    shorter, longest = size.get("shortest_edge"), size.get("longest_edge")
    fraction = getattr(processor, "crop_pct", None)
    if shorter and longest and not cropped:  # as detectors, which see whole images
        return {"size": (shorter, shorter), "crop": None, "longest": longest}
    if shorter and cropped:
        window = dict(processor.crop_size)
        side = window["height"], window["width"]
        return {"size": side, "crop": min(side) / shorter}
    if shorter and fraction:
        # ConvNeXt crops at input sizes below 384, and squashes the whole image from there on.
        crops = shorter < 384
        return {"size": (shorter, shorter), "crop": fraction if crops else 1.0, "squash": not crops}
    if size.get("height") and size.get("width"):
        resized = (size["height"], size["width"])
        if not cropped:
            return {"size": resized, "crop": 1.0, "squash": True}
        window = dict(processor.crop_size)
        side = window["height"], window["width"]
        return {"size": side, "crop": side[0] / resized[0], "squash": True}
    raise UsageError(f"target.network='hf:{model}' resizes images to {size}; expected a shortest edge or two sides")


def _enabled(processor: Any, step: str) -> bool:
    return bool(getattr(processor, step, False))
