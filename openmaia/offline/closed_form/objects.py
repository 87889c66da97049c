"""Detectors of objects, from the class outputs of EfficientNet-Lite1.

The project uses this network for nothing else: the scripted experimenter sees with EfficientNet-Lite2, and the target
of the demo is EfficientNet-Lite0. This table of ImageNet classes is independent of the experimenter's.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.offline.closed_form.colours import ConceptDetector
from openmaia.offline.closed_form.view import GRID_SIDE, DetectorInput, EvidenceMap

_NETWORK = "efficientnet_lite1"

INSIDE_CLASSES = {
    "bird": "7-24,80-100,127-146",
    "hoofed animal": "339-343,345-355",
    "carnivore": "151-299,356-362",
    "fruit": "948-957",
    "musical instrument": "401-402,420,432,486,513,541,546,558,566,579,593-594,683,776,875,881,889",
    "ball": "429-430,522,574,722,768,805,852,890",
    "vehicle": "403-405,407,436,468,479,511,547,555,569,573,581,586,595,609,627,654,656,661,675,705,717,734,751,757,779,"
    "802-803,817,820,829,847,864,866-867,870,874",
    "tool": "477,491,512,549,587,596,600,623,677,726,740,783-784,792",
}
"""Words of the vocabulary with their ImageNet classes. A word is listed if the mean probability of its classes on
collages of it (5 seeds, 6 backgrounds) is at least 0.25, because an experimenter cannot find a concept that the
detector does not recognise in generated images, and if none of its special cases or more general words is listed. The
list was fixed before any experimenter was run."""

OUTSIDE_CLASSES = {
    "mushroom": "991-997",
    "crab": "118-121",
    "snail": "113-114",
    "insect": "300-326",
    "camera": "732,759",
}
"""Objects for which the vocabulary has neither a word nor a more general word."""


def thing(classes: str) -> ConceptDetector:
    """Returns a detector of a group of ImageNet classes, such as "7-24,80-100".

    The evidence is the class activation map (Zhou et al. 2016) of the most probable of the classes, scaled to a maximum
    of 1 and multiplied by the total probability of the classes.
    """
    indices = _indices(classes)

    def detect(image: DetectorInput) -> EvidenceMap:
        probabilities, features, _ = _outputs(image)
        evidence = float(probabilities[indices].sum())
        strongest = indices[int(probabilities[indices].argmax())]
        there = np.maximum(np.tensordot(_weights()[strongest], features, axes=1), 0)
        place = there / there.max() if there.max() > 0 else np.ones_like(there)
        resized = Image.fromarray(place.astype(np.float32)).resize((GRID_SIDE, GRID_SIDE), Image.Resampling.BILINEAR)
        return (np.asarray(resized) * evidence).astype(np.float32)

    return detect


def strongest_logit(image: DetectorInput, classes: str) -> float:
    """Returns the highest logit among ImageNet classes, such as "7-24,80-100".

    Unlike a probability, it does not fall if there are other objects.
    """
    return float(_outputs(image)[2][_indices(classes)].max())


@cache
def _indices(classes: str) -> npt.NDArray[np.int64]:
    spans = [span.split("-") for span in classes.split(",")]
    return np.array([index for span in spans for index in range(int(span[0]), int(span[-1]) + 1)])


def _outputs(image: DetectorInput) -> tuple[npt.NDArray[np.float32], ...]:
    # Class probabilities (1000,), last feature maps (channels, h, w) and logits (1000,).
    if _NETWORK not in image.memo:
        import torch

        network = _network()
        view, _ = network.preprocess.view(image.view)
        with torch.inference_mode():
            features = network.module.extract_features(network.preprocess.tensor(view)[None])
            logits = network.module._fc(features.mean(dim=(2, 3)))
        image.memo[_NETWORK] = (logits.softmax(dim=1)[0].numpy(), features[0].numpy(), logits[0].numpy())
    return image.memo[_NETWORK]


@cache
def _network() -> Any:
    import torch

    from openmaia.models.targets.networks import load

    torch.set_num_threads(1)
    return load(_NETWORK)


@cache
def _weights() -> npt.NDArray[np.float32]:
    return _network().module._fc.weight.detach().numpy()
