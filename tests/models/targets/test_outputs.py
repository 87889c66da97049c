"""What the output of a network means, and which tensor of a compound output is read."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.services import LOG_PROBABILITIES, LOGITS, Intervention, LayerProbe, Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork
from tests.helpers.samples import noise

torch.set_num_threads(1)

PREPROCESS = Preprocess(size=(32, 32), crop=1, resample=Image.Resampling.BICUBIC, mean=(0.5,) * 3, std=(0.5,) * 3)
IMAGE = noise(1, 32, 32)


class Headed(nn.Module):
    """A small network whose logits go through a function."""

    def __init__(self, classes: int, end: Callable[[torch.Tensor], Any] = lambda z: z):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc, self.end = nn.Conv2d(3, 8, 3), nn.Linear(8, classes), end

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return 20 * self.fc(self.conv(x).relu().mean((2, 3)))

    def forward(self, x: torch.Tensor) -> Any:
        return self.end(self.logits(x))


def reader(module: nn.Module, layer: str = OUTPUT, **declared: Any) -> NetworkTarget:
    return NetworkTarget("net", TargetNetwork(module=module, preprocess=PREPROCESS, **declared), [layer])


def values(module: nn.Module, **declared: Any) -> np.ndarray:
    return reader(module, **declared).respond([LayerProbe(layer=OUTPUT, image=IMAGE)])[0]


def logits(module: Headed) -> torch.Tensor:
    with torch.no_grad():
        return module.eval().logits(PREPROCESS.tensor(IMAGE.pixels)[None])[0]


# -- meaning -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "end", "activation"),
    [
        (5, lambda z: z, lambda z: z.softmax(0)),
        (5, lambda z: z / 3, lambda z: (z / 3).softmax(0)),
        (5, lambda z: z.softmax(1), lambda z: z.softmax(0)),
        (2, nn.Softmax(1), lambda z: z.softmax(0)),
        (5, nn.LogSoftmax(1), lambda z: z.softmax(0)),
        (5, nn.Sigmoid(), lambda z: z.sigmoid()),
        (5, torch.sigmoid, lambda z: z.sigmoid()),
        (1, torch.sigmoid, lambda z: z.sigmoid()),
        (1, lambda z: z, lambda z: z),
        (1, lambda z: z.squeeze(1), lambda z: z),
        (1, lambda z: z.squeeze(), lambda z: z),
        (5, nn.Tanh(), lambda z: z.tanh()),
        (5, lambda z: nn.functional.normalize(z), lambda z: z / z.norm()),
    ],
    ids=(
        "logits temperature softmax two log sigmoid functional one-sigmoid one squeezed scalar tanh embedding".split()
    ),
)
def test_activation_of_an_output_is_what_it_means(classes: int, end: Any, activation: Any):
    module = Headed(classes, end)
    assert values(module) == pytest.approx(activation(logits(module)).numpy(), rel=1e-3, abs=1e-5)


def test_features_without_a_head_are_no_probabilities():
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with torch.no_grad():
        expected = module(PREPROCESS.tensor(IMAGE.pixels)[None])[0].numpy()
    assert values(module) == pytest.approx(expected, rel=1e-3)


def test_meaning_that_was_found_out_is_said():
    (line,) = reader(Headed(5)).info().understood
    assert "a softmax over 5 classes, because the network ends with Linear" in line
    assert "(if not, set target.output=sigmoid)" in line


def test_declared_meaning_is_used():
    module = Headed(3)
    assert values(module, output=OutputMeaning.SIGMOID) == pytest.approx(logits(module).sigmoid().numpy(), rel=1e-3)
    assert values(module, output=OutputMeaning.VALUES) == pytest.approx(logits(module).numpy(), rel=1e-3)


def test_sigmoid_is_stored_with_its_logit():
    module = Headed(3)
    probe = Probe(unit=Unit(target="net", layer=OUTPUT, index=1), image=IMAGE)
    assert reader(module, output=OutputMeaning.SIGMOID).probe([probe])[0].raw == pytest.approx(
        float(logits(module)[1]), rel=1e-3
    )


@pytest.mark.parametrize(
    ("end", "output"),
    [
        (nn.Softmax(1), OutputMeaning.SOFTMAX),
        (nn.Softmax(1), OutputMeaning.SIGMOID),
        (lambda z: 10 * z, OutputMeaning.PROBABILITIES),
    ],
)
def test_meaning_that_the_values_contradict_is_refused(end: Any, output: OutputMeaning):
    with pytest.raises(UsageError, match=f"target.output={output}"):
        reader(Headed(4, end), output=output)


def test_unclear_output_is_refused():
    with pytest.raises(UsageError, match="Set target.output to softmax or sigmoid"):
        reader(Headed(4, lambda z: z**3))


def test_classes_with_sigmoids_are_read_each_by_itself():
    unit = Unit(target="net", layer="conv", index=2)
    probabilities, logits = (
        reader(Headed(4, torch.sigmoid), "conv", output=OutputMeaning.PROBABILITIES),
        reader(Headed(4), "conv", output=OutputMeaning.SIGMOID),
    )
    assert not probabilities.effects().exclude and not logits.effects().exclude
    for read, expected in ((LOG_PROBABILITIES, nn.functional.logsigmoid), (LOGITS, lambda z: z)):
        change = Intervention(unit=unit, image=IMAGE, scale=0.5, read=read)
        found = [each.intervene([change])[0] for each in (probabilities, logits)]
        assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-5)
        raw = torch.from_numpy(logits.intervene([replace(change, read=LOGITS)])[0])
        assert found[1] == pytest.approx(expected(raw).numpy())
    assert reader(Headed(1), "conv", output=OutputMeaning.SIGMOID).effects().classes == ("class 0",)


def test_ablation_reads_probabilities_as_they_are():
    change = Intervention(unit=Unit(target="net", layer="conv", index=2), image=IMAGE, scale=0.5)
    found, expected = (reader(Headed(4, end), "conv").intervene([change])[0] for end in (nn.Softmax(1), lambda z: z))
    assert found == pytest.approx(expected, rel=1e-3)


# -- compound outputs ----------------------------------------------------------------------------------------------------


@dataclass
class Both:
    aux_logits: torch.Tensor
    logits: torch.Tensor


Pair = namedtuple("Pair", "aux logits")


@pytest.mark.parametrize(
    "end",
    [
        lambda z: {"loss": z.sum(), "logits": z},
        lambda z: OrderedDict(aux=-z, out=z),
        lambda z: {"features": -z, "classes": z},
        lambda z: Both(aux_logits=-z, logits=z),
        lambda z: Pair(-z, z),
        lambda z: (z.sum(), {"logits": z, "hidden_states": (-z, z)}),
        lambda z: (None, z),
    ],
    ids=["loss", "aux", "features", "dataclass", "namedtuple", "nested", "none"],
)
def test_result_of_a_compound_output_is_found(end: Any):
    assert values(Headed(5, end)) == pytest.approx(values(Headed(5)), rel=1e-3)


@pytest.mark.parametrize("end", [lambda z: {"a": z, "b": -z}, lambda z: (-z, z)], ids=["dict", "tuple"])
def test_several_results_are_refused_with_their_names(end: Any):
    with pytest.raises(UsageError, match=r"several outputs .*target\.entries=\{output: (a|0)\}"):
        reader(Headed(5, end))


def test_entry_of_a_layer_that_is_not_read_is_refused():
    with pytest.raises(UsageError, match="entry of 'outputt', which is not read; the layers are output"):
        reader(Headed(5), entries={"outputt": "b"})


def test_named_entry_is_read():
    module = Headed(5, lambda z: {"a": -z, "b": z})
    assert values(module, entries={OUTPUT: "b"}) == pytest.approx(values(Headed(5)), rel=1e-3)
    with pytest.raises(UsageError, match=r"no such entry; it has a \(2, 5\), b"):
        reader(module, entries={OUTPUT: "c"})
