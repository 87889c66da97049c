"""Pictures that pass together, and what is done when a device fails."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.errors import HostDead, ServiceError
from openmaia.services import Probe
from openmaia.targets.hooked import NetworkTarget, rounded
from openmaia.targets.networks import load
from openmaia.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Network, Preprocess, published
from openmaia.units import Unit
from tests.samples import noise

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
        "net", Network(module=module, preprocess=published((16, 16))), ["conv"], device="cpu", batch=batch
    )
    module.passes.clear()
    return reader, module


def test_pictures_of_equal_size_pass_together_once_and_are_remembered():
    reader, module = counting(batch=3)
    pictures = [noise(seed, 16, width) for seed, width in enumerate([16, 20, 16, 16, 16, 20])]
    reader.probe(
        [Probe(unit=Unit(target="net", layer="conv", index=i % 4), picture=p) for i, p in enumerate(pictures * 2)]
    )
    assert sorted(module.passes) == [(1, 16, 16), (2, 16, 20), (3, 16, 16)]
    reader.probe([Probe(unit=Unit(target="net", layer="conv", index=0), picture=picture) for picture in pictures])
    assert len(module.passes) == 3


def test_a_batch_answers_like_one_picture_after_the_other():
    pictures = [noise(seed, 16, width) for seed, width in enumerate([16, 20, 16, 16])]
    together, alone = counting(batch=8)[0], counting(batch=0)[0]
    pixels = [picture.pixels for picture in pictures]
    for (view, responses), (expected_view, expected) in zip(together.look(pixels), alone.look(pixels), strict=True):
        assert np.array_equal(view, expected_view)
        assert np.allclose(responses["conv"], expected["conv"], atol=1e-5)
        assert rounded(responses["conv"].max()) == pytest.approx(rounded(expected["conv"].max()), rel=2e-5)


def test_on_a_cpu_pictures_pass_one_by_one():
    reader, module = counting(batch=0)
    reader.look([noise(seed, 16, 16).pixels for seed in range(3)])
    assert module.passes == [(1, 16, 16)] * 3


@pytest.mark.parametrize(
    ("raised", "expected"), [(torch.OutOfMemoryError, ServiceError), (torch.AcceleratorError, HostDead)]
)
def test_a_gpu_that_fails_while_serving_is_no_mistake_of_the_user(
    raised: type[RuntimeError], expected: type[ServiceError]
):
    class Failing(nn.Conv2d):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            if input.abs().max() > 0:
                raise raised("the device said so")
            return super().forward(input)

    network = Network(module=nn.Sequential(Failing(3, 2, 3)), preprocess=SMALL)
    reader = NetworkTarget("net", network, ["0"], device="cpu")
    with pytest.raises(expected, match="the device said so") as caught:
        reader.look([noise(0).pixels])
    assert type(caught.value) is expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_answers_as_a_cpu_does():
    pictures = [noise(seed, 224, 224) for seed in range(40)]
    found, expected = (
        NetworkTarget("net", load("resnet18", "random"), ["layer3"], device=device).look(
            [picture.pixels for picture in pictures]
        )
        for device in ("", "cpu")
    )
    for (_, on_gpu), (_, on_cpu) in zip(found, expected, strict=True):
        assert np.allclose(on_gpu["layer3"], on_cpu["layer3"], atol=1e-4 * float(np.abs(on_cpu["layer3"]).max()))
