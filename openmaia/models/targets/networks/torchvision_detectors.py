"""Detectors of torchvision, whose output has the largest score of each class in an image.

Of boxes that overlap, torchvision keeps the best one of each class, so that its score is known before boxes are selected.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torchvision
from PIL import Image
from torch import nn
from torch.nn import functional
from torchvision.models import detection
from torchvision.models.detection.image_list import ImageList
from torchvision.transforms.functional import to_tensor

from openmaia.core.errors import UsageError
from openmaia.core.images import Pixels, ViewBox, whole
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.networks.detectors import OUTPUTS, class_names, largest_log_odds, log_odds
from openmaia.models.targets.networks.from_torchvision import downloaded, named_weights
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork, verify

# Of these, torchvision applies the weights COCO_V1 with batch normalisation that adds nothing to the variance.
_WITHOUT_EPSILON = {f"{kind}_resnet50_fpn" for kind in ("fasterrcnn", "maskrcnn", "keypointrcnn", "retinanet")}

_LEAST = -69.0  # log-odds of a score of 1e-30


def names() -> list[str]:
    """Returns the names of all detectors of torchvision."""
    return torchvision.models.list_models(module=detection)


def load(name: str, pretrained: bool) -> TargetNetwork:
    """Loads a detector by its name and optionally that of its weights, such as `ssd300_vgg16@COCO_V1`.

    Args:
        pretrained: As of `from_torchvision.load`.

    Raises:
        UsageError: The weights are unknown or cannot be downloaded, or torchvision lacks the operators of a detector of
            two stages.
    """
    plain, _, chosen = name.partition("@")
    weights = named_weights(plain, chosen or "DEFAULT")
    model: Any = downloaded(plain, weights) if pretrained else _architecture(plain, weights)
    return TargetNetwork(
        module=scored(model, name),
        preprocess=read_preprocess(model, name),
        labels=class_names(dict(enumerate(weights.meta["categories"]))) if pretrained else (),
        output=OutputMeaning.SIGMOID,
        outputs=OUTPUTS.format(what="boxes"),
    )


def _architecture(name: str, weights: Any) -> nn.Module:
    """With random weights, as those weights need it."""
    model = torchvision.models.get_model(
        name, weights=None, weights_backbone=None, num_classes=len(weights.meta["categories"])
    )
    if weights.name == "COCO_V1" and name in _WITHOUT_EPSILON:
        for each in model.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.eps = 0.0
    return model


# -- scores --------------------------------------------------------------------------------------------------------------


def scored(model: Any, name: str) -> nn.Module:
    """Returns a module with the layers of a detector, whose output has the log-odds of its classes.

    Raises:
        UsageError: The detector has two stages, and torchvision lacks the operators for them.
    """
    if isinstance(model, detection.RetinaNet):
        return OneStageDetector(model, _of_sigmoid)
    if isinstance(model, detection.FCOS):
        return OneStageDetector(model, _of_fcos)
    if isinstance(model, detection.ssd.SSD):
        return OneStageDetector(model, _of_softmax)
    _check_operators(name)
    return TwoStageDetector(model)


class OneStageDetector(nn.Module):
    """A RetinaNet, FCOS or SSD, by the library's names of its modules."""

    def __init__(self, model: Any, score: Callable[[Mapping[str, torch.Tensor]], torch.Tensor]):
        super().__init__()
        self.backbone, self.head = model.backbone, model.head
        self._divisor, self._score = model.transform.size_divisible, score

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns log-odds, shape (images, classes), for inputs that are resized and normalised."""
        return self._score(self.head(list(self.backbone(_padded(pixels, self._divisor)).values())))


class TwoStageDetector(nn.Module):
    """A Faster R-CNN, or what selects boxes as it does (Mask R-CNN, Keypoint R-CNN), by the library's names."""

    def __init__(self, model: Any):
        super().__init__()
        self.backbone, self.rpn, self.roi_heads = model.backbone, model.rpn, model.roi_heads
        self._divisor = model.transform.size_divisible

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """As that of `OneStageDetector`."""
        padded = _padded(pixels, self._divisor)
        sizes = [(int(pixels.shape[2]), int(pixels.shape[3]))] * len(pixels)
        features: OrderedDict[str, torch.Tensor] = self.backbone(padded)
        proposals, _ = self.rpn(ImageList(padded, sizes), features)
        pooled = self.roi_heads.box_roi_pool(features, proposals, sizes)
        logits, _ = self.roi_heads.box_predictor(self.roi_heads.box_head(pooled))
        own = logits.split([len(each) for each in proposals])
        return torch.cat([_of_softmax({"cls_logits": each[None]}) for each in own])


def _padded(pixels: torch.Tensor, divisor: int) -> torch.Tensor:
    """With zeros below and to the right, as the library does it."""
    down, right = (-side % divisor for side in pixels.shape[2:])
    return functional.pad(pixels, (0, right, 0, down))


def _of_sigmoid(given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return largest_log_odds(given["cls_logits"], None)


def _of_softmax(given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    # The first class stands for no object. It is kept, so that units have the numbers of the library's labels.
    odds = log_odds(given["cls_logits"].double().log_softmax(dim=2))
    # The least one, because an image may have no proposals.
    return functional.pad(odds, (0, 0, 0, 1), value=_LEAST).amax(dim=1).float()


def _of_fcos(given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    # A score is the square root of class score times centre-ness (Tian et al. 2020, arXiv:2006.09214).
    parts = [functional.logsigmoid(given[name].double()) for name in ("cls_logits", "bbox_ctrness")]
    return log_odds((parts[0] + parts[1]) / 2).amax(dim=1).float()


def _check_operators(name: str) -> None:
    try:
        torchvision.ops.nms(torch.zeros(1, 4), torch.ones(1), 0.5)
    except RuntimeError as error:
        raise UsageError(
            f"target.network={name!r} selects boxes before it scores their classes, and this torchvision cannot, because it was "
            f"built for another PyTorch than {torch.__version__}; install the two that belong together, or give a detector of "
            "one stage, such as retinanet_resnet50_fpn_v2 or ssdlite320_mobilenet_v3_large"
        ) from error


# -- preprocessing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DetectorPreprocess(Preprocess):
    """That of torchvision's detectors, which resize without antialiasing."""

    @property
    def description(self) -> str:
        return f"{super().description}, resized without antialiasing"

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        height, width = pixels.shape[:2]
        if self.crop is not None and not (self.squash and self.crop == 1):  # as a user says
            return super().view(pixels)
        rows, columns = self.size
        if self.crop is None:
            scale = min(min(self.size) / min(height, width), self.longest / max(height, width))
            rows, columns = max(1, math.floor(height * scale)), max(1, math.floor(width * scale))
        if (rows, columns) == (height, width):
            return pixels, whole(pixels)
        # Pillow would filter.
        values = torch.tensor(pixels).permute(2, 0, 1)[None].float()
        resized = functional.interpolate(values, (rows, columns), mode="bilinear", align_corners=False)
        return resized[0].round().byte().permute(1, 2, 0).numpy(), whole(pixels)


def read_preprocess(model: Any, name: str) -> Preprocess:
    """Returns what a detector does to images, but not how it pads them."""
    given = model.transform
    sides = given.fixed_size[::-1] if given.fixed_size else (given.min_size[-1],) * 2
    ours = DetectorPreprocess(
        size=sides,
        crop=1.0 if given.fixed_size else None,
        squash=bool(given.fixed_size),
        longest=given.max_size,
        resample=Image.Resampling.BILINEAR,
        mean=tuple(given.image_mean),
        std=tuple(given.image_std),
    )

    def theirs(image: Image.Image) -> torch.Tensor:
        made, _ = given.eval()([to_tensor(image)])
        height, width = made.image_sizes[0]
        return made.tensors[0, :, :height, :width]

    return verify(ours, theirs, name)
