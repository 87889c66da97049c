"""The precision in which a network computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from openmaia.config.loading import load
from openmaia.core.components import stored_remark
from openmaia.core.errors import UsageError
from openmaia.core.services import Intervention, LayerProbe, Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.precision import Precision, computing_in
from openmaia.models.targets.preprocess import TargetNetwork, published
from tests.helpers.samples import noise

CPU = torch.device("cpu")
IMAGES = [noise(seed, 32, 32) for seed in range(3)]


def network() -> TargetNetwork:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return TargetNetwork(module=module.eval(), preprocess=published((32, 32)), labels=tuple("abcd"))


def target(precision: Precision, layers: tuple[str, ...] = ("0", OUTPUT)) -> NetworkTarget:
    return NetworkTarget("net", network(), layers, device="cpu", precision=precision)


def by_hand(images: list[Any]) -> torch.Tensor:
    module = network().module
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        return torch.cat([module[0](published((32, 32)).tensor(image.pixels)[None]) for image in images]).float()  # pyright: ignore[reportIndexIssue]


def test_bfloat16_is_that_of_autocast_for_probes_layers_and_exemplars():
    reader, expected = target("bfloat16"), by_hand(IMAGES)
    read = reader.probe([Probe(unit=Unit(target="net", layer="0", index=3), image=image) for image in IMAGES])
    assert all(np.array_equal(each.map, own[3]) for each, own in zip(read, expected.numpy(), strict=True))  # pyright: ignore[reportArgumentType]
    layers = reader.respond([LayerProbe(layer="0", image=image) for image in IMAGES])
    assert [values[3] for values in layers] == [each.value for each in read]
    assert torch.equal(reader.responses([IMAGES[0].pixels], [""])["0"], expected[:1])


def test_bfloat16_differs_from_float32_by_its_rounding():
    images = [Probe(unit=Unit(target="net", layer=layer, index=1), image=IMAGES[0]) for layer in ("0", OUTPUT)]
    full, less = target("float32").probe(images), target("bfloat16").probe(images)
    for one, other in zip(full, less, strict=True):
        assert one.value != other.value
        assert other.value == pytest.approx(one.value, rel=2**-6)


def test_scaled_units_are_computed_in_the_same_precision():
    change = Intervention(unit=Unit(target="net", layer="0", index=1), image=IMAGES[0], scale=0.0)
    full, less = (target(each, ("0",)).intervene([change])[0] for each in ("float32", "bfloat16"))
    assert not np.array_equal(full, less)
    assert np.allclose(full, less, atol=0.02)


def test_precision_is_named_where_preprocessing_is():
    full, less = target("float32").info(), target("bfloat16").info()
    assert less.preprocessing == f"{full.preprocessing}; the network computes in bfloat16"
    assert less.digest == full.digest


def test_exemplars_of_another_precision_are_refused(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "x")
    store.claim({"preprocess": target("float32").info().preprocessing})
    with pytest.raises(UsageError, match="preprocess"):
        store.claim({"preprocess": target("bfloat16").info().preprocessing})


def test_tf32_is_refused_on_a_cpu():
    with pytest.raises(UsageError, match=r"target\.precision=tf32: the network runs on a CPU"):
        target("tf32")


def test_precision_holds_during_a_pass_alone():
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    outside = cudnn.allow_tf32, products.allow_tf32
    with computing_in("tf32", CPU):
        assert cudnn.allow_tf32
        assert products.allow_tf32
        with computing_in("float32", CPU):
            assert not cudnn.allow_tf32
            assert not products.allow_tf32
        assert products.allow_tf32
    assert (cudnn.allow_tf32, products.allow_tf32) == outside
    with torch.autocast("cpu", torch.bfloat16), computing_in("float32", CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_config_key_reaches_reports():
    given = [
        "name=x",
        "units=all",
        "target.kind=network",
        "target.name=t",
        "target.network=resnet18",
        "target.layers=[layer1]",
    ]
    config = load([*given, "target.precision=bfloat16"])
    assert stored_remark(vars(config.target), "target") == "computed in bfloat16"
    assert stored_remark(vars(load(given).target), "target") == ""
    with pytest.raises(UsageError, match=r"target\.precision"):
        load([*given, "target.precision=half"])
