"""Networks of a user's own, for tests. They declare ImageNet's preprocessing."""

from typing import Any

import numpy as np
import torch
from PIL import Image

from openmaia.models.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess, TargetNetwork


def declared(module: torch.nn.Module) -> TargetNetwork:
    return TargetNetwork(
        module=module,
        preprocess=Preprocess(
            size=(224, 224), crop=0.875, resample=Image.Resampling.BILINEAR, mean=IMAGENET_MEAN, std=IMAGENET_STD
        ),
    )


class Boolean(torch.nn.Module):
    """A layer whose output cannot be a unit."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(x).float().mean(dim=(1, 2, 3))


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x > 0


def boolean() -> TargetNetwork:
    return declared(Boolean())


def brightest(images, note: str):
    """The brightest of some images, and how many there were."""
    from PIL import ImageStat

    image = max(images, key=lambda image: ImageStat.Stat(image).mean[0])
    return {"image": image, "note": f"{note}: {len(images)} images"}


class Deadly(torch.nn.Module):
    """Its process dies at the sight of a picture that is red all over; its forward pass fails on a blue one and does not
    end on a green one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        red, green, blue = x.mean(dim=(0, 2, 3)).tolist()
        if red > 1 and green < -1 and blue < -1:
            import os

            os._exit(1)
        if green > 1 and red < -1 and blue < -1:
            import time

            time.sleep(3600)
        if blue > 1 and red < -1:
            raise ValueError("no blue pictures, please")
        return self.conv(x)


class Unsound(torch.nn.Module):
    """Its second unit gives NaN and its third infinity on pictures with much red; its fourth is always 0."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.head = torch.nn.Conv2d(4, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x))


def unsound() -> TargetNetwork:
    torch.manual_seed(0)
    network = Unsound()

    def spoil(module: torch.nn.Module, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        output[:, 3] = 0
        if given[0][:, 0].mean() > 0:
            output[:, 1, 0, 0] = float("nan")
            output[:, 2, -1, -1] = float("inf")
        return output

    network.conv.register_forward_hook(spoil)
    return declared(network)


def mortal() -> TargetNetwork:
    """Sound, but its process dies at the twentieth picture, unless one has died here before."""
    import os
    from pathlib import Path

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.ReLU(), torch.nn.Conv2d(6, 8, 3, stride=2))
    grave = os.environ.get("OPENMAIA_TEST_GRAVE")
    seen = [0]

    def count(module: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        seen[0] += 1
        if grave and seen[0] == 20 and not Path(grave).exists():
            Path(grave).touch()
            os._exit(1)

    network.register_forward_pre_hook(count)
    return declared(network)


def watchful() -> TargetNetwork:
    """As `mortal`; writes down the GPUs that its process is shown."""
    import os

    with open(os.environ["OPENMAIA_TEST_SHOWN"], "a") as shown:
        shown.write(repr(os.environ.get("CUDA_VISIBLE_DEVICES")) + "\n")
    return mortal()


def deadly() -> TargetNetwork:
    torch.manual_seed(0)
    return declared(Deadly())


class SmallClassifier(torch.nn.Module):
    """`features`: as many maps as its last layer has inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 12, 5, stride=4)
        self.features = torch.nn.ReLU()
        self.head = torch.nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(self.stem(x)).mean(dim=(2, 3)))


def small_classifier() -> TargetNetwork:
    return declared(SmallClassifier())


def statistics(what: str) -> dict[str, Any]:
    """Numbers as NumPy has them, or a value that JSON or UTF-8 does not have."""
    if what == "half":
        return {"\ud83d": "\ud83d"}
    if what == "half of an error":
        raise ValueError("\ud83d")
    usual = {"mean": np.float32(0.5), "counts": np.array([1, 2]), "found": np.bool_(True)}
    return {"nan": {"mean": float("nan")}, "blob": {"$blob": 1}}.get(what, usual)
