"""Transforms of users: recognised where they are usual ones, called as they are otherwise, and refused where they are wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as T
from PIL import Image
from torchvision.transforms import InterpolationMode

from openmaia.core.errors import UsageError
from openmaia.models.targets.borrowed import with_preprocess
from openmaia.models.targets.preprocess import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    GivenPreprocess,
    Preprocess,
    TargetNetwork,
)
from openmaia.models.targets.transforms import TransformPreprocess, from_transform
from tests.helpers.samples import noise

NORMALISED = T.Normalize(IMAGENET_MEAN, IMAGENET_STD)
BICUBIC = InterpolationMode.BICUBIC


@pytest.mark.parametrize(
    ("steps", "size", "crop", "resample", "mean", "squash"),
    [
        (
            [T.Resize(256), T.CenterCrop(224), T.ToTensor(), NORMALISED],
            224,
            224 / 256,
            "BILINEAR",
            IMAGENET_MEAN,
            False,
        ),
        ([T.ToTensor(), T.Resize(64, antialias=True), T.CenterCrop(56)], 56, 56 / 64, "BILINEAR", (0.0,) * 3, False),
        ([T.Resize(72, BICUBIC), T.CenterCrop(64), T.ToTensor()], 64, 64 / 72, "BICUBIC", (0.0,) * 3, False),
        (
            [T.Resize((32, 32)), T.ToTensor(), T.Normalize((0.5,) * 3, (0.5,) * 3)],
            32,
            1.0,
            "BILINEAR",
            (0.5,) * 3,
            True,
        ),
        ([T.Grayscale(), T.Resize(28), T.CenterCrop(28), T.ToTensor()], 28, 1.0, "BILINEAR", (0.0,), False),
    ],
    ids=["imagenet", "tensors", "bicubic", "squash", "grey"],
)
def test_usual_transform_is_recognised(
    steps: list[Any], size: int, crop: float, resample: str, mean: tuple[float, ...], squash: bool
):
    found = from_transform(T.Compose(steps))
    assert isinstance(found, Preprocess)
    assert (found.size, found.crop, found.squash) == ((size, size), pytest.approx(crop, abs=1e-3), squash)
    assert (found.resample.name, found.mean) == (resample, pytest.approx(mean, abs=1e-5))
    pixels = noise(0, 90, 130).pixels
    expected = T.Compose(steps)(Image.fromarray(pixels))
    # One step of scaling rounds where two steps round twice.
    assert float((found.tensor(found.view(pixels)[0]) - expected).abs().mean()) < 0.25 * float(expected.std())


def reversed_channels(values: torch.Tensor) -> torch.Tensor:
    return values.flip(0)


@pytest.mark.parametrize(
    "steps",
    [
        [T.Resize(64), T.CenterCrop(64), T.ToTensor(), reversed_channels],
        [T.Resize(64), T.CenterCrop(80), T.ToTensor()],
        [T.CenterCrop(100), T.ToTensor()],
        [T.Resize(64), T.CenterCrop(64), T.functional.autocontrast, T.ToTensor()],
        [T.Resize(64), T.CenterCrop(64), T.ToTensor(), lambda x: (x - x.mean()) / (x.std() + 1e-6)],
    ],
    ids=["bgr", "padding", "fixed crop", "autocontrast", "standardised"],
)
def test_other_transform_is_called_as_it_is(steps: list[Any]):
    found = from_transform(T.Compose(steps))
    assert isinstance(found, TransformPreprocess)
    pixels = noise(1, 120, 150).pixels
    view, box = found.view(pixels)
    assert box == (0, 0, 150, 120)
    assert torch.equal(found.tensor(view), T.Compose(steps)(Image.fromarray(pixels)))


def test_values_for_a_network_with_a_preprocessing_function_are_refused():
    network = TargetNetwork(
        module=torch.nn.Conv2d(3, 2, 1), preprocess=from_transform(lambda image: T.ToTensor()(image))
    )
    assert with_preprocess(network, None, GivenPreprocess()) is network
    with pytest.raises(UsageError, match="preprocesses images by a function .*leave them out"):
        with_preprocess(network, None, GivenPreprocess(size=32))


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (T.Compose([T.RandomCrop(64), T.ToTensor()]), "another result each time"),
        (T.Resize(64), r"returned Image .*add ToTensor\(\)"),
        (lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1), "torch.uint8"),
        (lambda image: torch.zeros(64, 64, 3), r"shape \(64, 64, 3\).*expected .*\(channels, height, width\)"),
        (lambda image: T.ToTensor()(image)[None], r"shape \(1, 3, 480, 720\)"),
        (lambda image: T.ToTensor()(image) / 0, "NaN or infinite"),
        (lambda image: image["pixels"], "failed with TypeError.*called with a Pillow image"),
    ],
    ids=["random", "image", "uint8", "channels last", "batch", "not finite", "exception"],
)
def test_wrong_transform_is_refused(transform: Callable[[Any], Any], message: str):
    with pytest.raises(UsageError, match=message):
        from_transform(transform)
