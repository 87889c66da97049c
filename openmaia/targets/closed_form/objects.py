"""Detectors of things: class evidence of EfficientNet-Lite1, which serves nowhere else in this project.

The eyes are EfficientNet-Lite2 and the demo's target is Lite0; which classes belong to a word is written here anew, by
the names of ImageNet's classes, and only for words that name such classes.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from openmaia.targets.closed_form.colours import Detector
from openmaia.targets.closed_form.seen import GRID, Plane, Seen
from openmaia.targets.networks import load

NETWORK = "efficientnet_lite1"

INSIDE = {
    "bird": "7-24,80-100,127-146",
    "insect": "300-326",
    "horse": "339-340",
    "cow": "345-347",
    "pig": "341-343",
    "big cat": "286-293",
    "monkey": "365-384",
    "rodent": "330-336,338",
    "citrus": "950-951",
    "drum": "541",
    "ball": "429-430,522,574,722,768,805,852,890",
    "car": "407,436,468,511,609,627,656,661,717,751,817",
}
"""Words of the closed vocabulary -> classes: those of whose collages (5 seeds on 6 grounds each) the network makes 0.25 or
more on average. What no picture at hand shows to a detector nobody could find out; this was settled before any
experimenter was run."""

OUTSIDE = {
    "mushroom": "991-997",
    "crab": "118-121",
    "snail": "113-114",
    "trumpet": "513,566,776",
    "camera": "732,759",
}
"""Things that the closed vocabulary has no word for, neither exactly nor by a wider one."""


def thing(classes: str) -> Detector:
    """The probability of a group of classes, laid where the classes' own weights find it (class activation mapping of
    Zhou et al. 2016, relative to its strongest place)."""
    indices = _indices(classes)

    def detect(seen: Seen) -> Plane:
        probabilities, features, _ = _looked(seen)
        evidence = float(probabilities[indices].sum())
        strongest = indices[int(probabilities[indices].argmax())]
        there = np.maximum(np.tensordot(_weights()[strongest], features, axes=1), 0)
        place = there / there.max() if there.max() > 0 else np.ones_like(there)
        resized = Image.fromarray(place.astype(np.float32)).resize((GRID, GRID), Image.Resampling.BILINEAR)
        return (np.asarray(resized) * evidence).astype(np.float32)

    return detect


def strongest(seen: Seen, classes: str) -> float:
    """The highest logit of a group of classes: unlike a probability it does not fall because something else is there."""
    return float(_looked(seen)[2][_indices(classes)].max())


@cache
def _indices(classes: str) -> npt.NDArray[np.int64]:
    spans = [span.split("-") for span in classes.split(",")]
    return np.array([index for span in spans for index in range(int(span[0]), int(span[-1]) + 1)])


Found = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]


def _looked(seen: Seen) -> Found:
    """Class probabilities (1000,), the last features (channels, h, w), and logits (1000,), once per picture."""
    kept = seen.memo.get(NETWORK)
    if kept is None:
        network = _network()
        view, _ = network.preprocess.view(seen.view)
        with torch.inference_mode():
            features = network.module.extract_features(network.preprocess.tensor(view)[None])
            logits = network.module._fc(features.mean(dim=(2, 3)))
        kept = logits.softmax(dim=1)[0].numpy(), features[0].numpy(), logits[0].numpy()
        seen.memo[NETWORK] = kept
    return kept


@cache
def _network() -> Any:
    torch.set_num_threads(1)
    return load(NETWORK)


@cache
def _weights() -> npt.NDArray[np.float32]:
    return _network().module._fc.weight.detach().numpy()
