"""Pictures that pass together, and what is done when a device fails."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.core.errors import HostDead, ServiceError
from openmaia.core.services import Probe
from openmaia.core.units import Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import load
from openmaia.models.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess, TargetNetwork, published
from openmaia.models.targets.responses import rounded
from tests.helpers.samples import noise

torch.set_num_threads(1)

SMALL = Preprocess(size=(32, 32), crop=0.875, resample=Image.Resampling.BICUBIC, mean=IMAGENET_MEAN, std=IMAGENET_STD)


class Counting(nn.Module):
    """Remembers how many pictures of which size came in each pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.passes = nn.Conv2d(3, 4, 3), list[tuple[int, ...]]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append((len(x), *x.shape[2:]))
        return self.conv(x)


def counting(batch: int) -> tuple[NetworkTarget, Counting]:
    module = Counting()
    reader = NetworkTarget(
        "net", TargetNetwork(module=module, preprocess=published((16, 16))), ["conv"], device="cpu", batch=batch
    )
    module.passes.clear()
    return reader, module


def test_equal_sizes_share_a_pass_and_are_cached():
    reader, module = counting(batch=3)
    pictures = [noise(seed, 16, width) for seed, width in enumerate([16, 20, 16, 16, 16, 20])]
    reader.probe(
        [Probe(unit=Unit(target="net", layer="conv", index=i % 4), image=p) for i, p in enumerate(pictures * 2)]
    )
    assert sorted(module.passes) == [(1, 16, 16), (2, 16, 20), (3, 16, 16)]
    reader.probe([Probe(unit=Unit(target="net", layer="conv", index=0), image=image) for image in pictures])
    assert len(module.passes) == 3


def test_batch_equals_single_images():
    pictures = [noise(seed, 16, width) for seed, width in enumerate([16, 20, 16, 16])]
    together, alone = counting(batch=8)[0], counting(batch=0)[0]
    pixels = [image.pixels for image in pictures]
    for (box, responses), (expected_box, expected) in zip(together.look(pixels), alone.look(pixels), strict=True):
        assert box == expected_box
        assert np.allclose(responses["conv"], expected["conv"], atol=1e-5)
        assert rounded(responses["conv"].max()) == pytest.approx(rounded(expected["conv"].max()), rel=2e-5)


def test_cpu_runs_images_one_by_one():
    reader, module = counting(batch=0)
    reader.look([noise(seed, 16, 16).pixels for seed in range(3)])
    assert module.passes == [(1, 16, 16)] * 3


@pytest.mark.parametrize(
    ("raised", "expected"), [(torch.OutOfMemoryError, ServiceError), (torch.AcceleratorError, HostDead)]
)
def test_gpu_failure_is_a_service_error(raised: type[RuntimeError], expected: type[ServiceError]):
    class Failing(nn.Conv2d):
        is_lost = False

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            if self.is_lost:
                raise raised("the device said so")
            return super().forward(input)

    layer = Failing(3, 2, 3)
    network = TargetNetwork(module=nn.Sequential(layer), preprocess=SMALL)
    reader = NetworkTarget("net", network, ["0"], device="cpu")
    layer.is_lost = True
    with pytest.raises(expected, match="the device said so") as caught:
        reader.look([noise(0).pixels])
    assert type(caught.value) is expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_equals_cpu():
    pictures = [noise(seed, 224, 224) for seed in range(40)]
    found, expected = (
        NetworkTarget("net", load("resnet18", "random"), ["layer3"], device=device).look(
            [image.pixels for image in pictures]
        )
        for device in ("", "cpu")
    )
    for (_, on_gpu), (_, on_cpu) in zip(found, expected, strict=True):
        assert np.allclose(on_gpu["layer3"], on_cpu["layer3"], atol=1e-4 * float(np.abs(on_cpu["layer3"]).max()))
