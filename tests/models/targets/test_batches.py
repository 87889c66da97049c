"""Pictures that pass together, and what is done when a device fails."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.core.errors import HostDead, ServiceError
from openmaia.core.images import EncodedImage
from openmaia.core.services import LayerProbe, Probe
from openmaia.core.units import Unit
from openmaia.exemplars.passes import run_batches
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.networks import load
from openmaia.models.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess, TargetNetwork, published
from openmaia.models.targets.responses import rounded
from tests.helpers.looking import loaded, look
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


def test_layers_are_measured_in_the_passes_of_units():
    reader, module = counting(batch=3)
    pictures = [noise(seed, 16, 16) for seed in range(3)]
    read = reader.probe([Probe(unit=Unit(target="net", layer="conv", index=2), image=image) for image in pictures])
    layers = reader.respond([LayerProbe(layer="conv", image=image) for image in pictures])
    assert [values.shape for values in layers] == [(4,)] * 3
    assert [each.value for each in read] == [values[2] for values in layers]
    assert module.passes == [(3, 16, 16)]


def test_map_of_a_probe_can_be_changed_without_harm():
    reader, module = counting(batch=1)
    probe = Probe(unit=Unit(target="net", layer="conv", index=2), image=noise(0, 16, 16))
    first, again = reader.probe([probe])[0], reader.probe([probe])[0]
    assert first.map is not None
    assert again.map is not None
    expected = again.map.copy()
    first.map[:] = 7
    assert np.array_equal(again.map, expected)
    assert reader.probe([probe])[0].value == again.value
    assert len(module.passes) == 1


def test_equal_images_are_resized_once():
    reader, _ = counting(batch=1)
    images = [noise(0, 40, 40), noise(1, 40, 40), EncodedImage.of(noise(0, 40, 40).pixels)]
    (first, box), (other, _), (again, same_box) = reader._recent.views(images)
    assert again is first and same_box == box
    assert not np.array_equal(other, first)
    assert np.array_equal(reader.view(images[0].pixels)[0], first)
    assert reader._recent.views(images[:1])[0][0] is first


def test_memory_that_a_probe_lacks_is_taken_from_what_is_kept():
    reader, module = counting(batch=8)
    unit, pictures = Unit(target="net", layer="conv", index=0), [noise(seed, 16, 16) for seed in range(3)]
    reader.probe([Probe(unit=unit, image=pictures[0])])
    assert reader._recent.nbytes == 4 * 14 * 14 * 4
    refused: list[int] = []

    def refuse(*_: object) -> None:
        if not refused:
            refused.append(1)
            raise torch.OutOfMemoryError("too many")

    module.conv.register_forward_pre_hook(refuse)
    with pytest.raises(ServiceError, match="ran out of GPU memory"):
        reader.probe([Probe(unit=unit, image=image) for image in pictures])
    assert reader._recent.nbytes == 0
    assert len(reader.probe([Probe(unit=unit, image=image) for image in pictures])) == 3


def test_batch_equals_single_images():
    pictures = [noise(seed, 16, width) for seed, width in enumerate([16, 20, 16, 16])]
    together, alone = counting(batch=8)[0], counting(batch=0)[0]
    numbered = [loaded(together, number, image) for number, image in enumerate(pictures)]
    for batch, responses in run_batches(together, numbered):
        for row, image in zip(responses["conv"].numpy(), batch, strict=True):
            ((box, expected),) = look(alone, [pictures[image.number].pixels])
            assert image.box == box
            assert np.allclose(row, expected["conv"], atol=1e-5)
            assert rounded(row.max()) == pytest.approx(rounded(expected["conv"].max()), rel=2e-5)


def passes(reader: NetworkTarget, module: Counting, widths: Sequence[int]) -> list[tuple[int, ...]]:
    images = [loaded(reader, number, noise(number, 16, width)) for number, width in enumerate(widths)]
    seen = [image.number for batch, _ in run_batches(reader, images) for image in batch]
    assert sorted(seen) == list(range(len(widths)))
    return module.passes


def test_cpu_runs_images_of_a_pass_one_by_one():
    assert passes(*counting(batch=0), [16, 16, 20]) == [(1, 16, 16), (1, 16, 16), (1, 16, 20)]


def test_images_of_a_pass_wait_for_others_of_their_size():
    expected = [(2, 16, 16), (2, 16, 20), (1, 16, 24), (1, 16, 16)]
    assert sorted(passes(*counting(batch=2), [16, 20, 24, 16, 20, 16])) == sorted(expected)


def test_memory_that_does_not_suffice_halves_the_batches_of_a_pass():
    reader, module = counting(batch=8)

    def refuse(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if len(inputs[0]) > 2:
            raise torch.OutOfMemoryError("too many")

    module.conv.register_forward_pre_hook(refuse)
    assert passes(reader, module, [16] * 11) == [(8, 16, 16), (4, 16, 16), *[(2, 16, 16)] * 5, (1, 16, 16)]
    assert reader.batch == 2


def test_memory_that_does_not_suffice_for_one_image_ends_a_pass():
    reader, module = counting(batch=2)

    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("too many")

    module.conv.register_forward_pre_hook(refuse)
    with pytest.raises(ServiceError, match="ran out of GPU memory"):
        passes(reader, module, [16] * 3)


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
        look(reader, [noise(0).pixels])
    assert type(caught.value) is expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_equals_cpu():
    pictures = [noise(seed, 224, 224).pixels for seed in range(40)]
    on_gpu, on_cpu = (
        NetworkTarget("net", load("resnet18", "untrained"), ["layer3"], device=device)
        .responses(pictures, [""] * len(pictures))["layer3"]
        .cpu()
        for device in ("", "cpu")
    )
    assert torch.allclose(on_gpu, on_cpu, atol=1e-4 * float(on_cpu.abs().max()))
