"""Networks of other strides, states, types and wrappers: the values of a plain hook, or an error with the true reason."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torch import nn
from torch.optim.swa_utils import AveragedModel

from openmaia.core.errors import UsageError
from openmaia.core.services import LayerProbe
from openmaia.models.targets import borrowed
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import GivenPreprocess, Preprocess, TargetNetwork
from openmaia.models.targets.state import weights_digest
from openmaia.models.targets.survey import survey
from tests.helpers.samples import noise

torch.set_num_threads(1)
GIVEN = GivenPreprocess(size=32, mean=(0.5,) * 3, std=(0.5,) * 3)
IMAGE = noise(0, 32, 32)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 1)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(8, 4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.conv(x)).float().mean((2, 3))


def measured(model: nn.Module, layer: str) -> npt.NDArray[np.float64]:
    borrowed.compute_digest(model)
    target = NetworkTarget("net", borrowed.with_preprocess(model, None, GIVEN), [layer])
    return target.respond([LayerProbe(layer=layer, image=IMAGE)])[0]


def hooked(model: nn.Module, layer: str, dtype: torch.dtype = torch.float32) -> npt.NDArray[np.float64]:
    found: list[Any] = []
    handle = model.get_submodule(layer).register_forward_hook(lambda _m, _i, out: found.append(out))
    values = (torch.from_numpy(IMAGE.pixels.copy()).permute(2, 0, 1)[None].float() / 255 - 0.5) / 0.5
    with torch.inference_mode():
        model.eval()(values.to(dtype))
    handle.remove()
    out = found[0].dequantize() if found[0].is_quantized else found[0]
    return out[0].flatten(1).amax(1).double().numpy()


def refusal(model: nn.Module, layer: str) -> str:
    with pytest.raises(UsageError) as caught:
        measured(model, layer)
    return caught.value.message


# -- state ---------------------------------------------------------------------------------------------------------------


def test_digest_does_not_depend_on_strides():
    usual = Block()
    last = Block().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    strided = Block()
    strided.conv.weight = nn.Parameter(torch.stack([usual.conv.weight.data, torch.zeros(8, 3, 1, 1)], 4)[..., 0])
    assert borrowed.compute_digest(last) == borrowed.compute_digest(strided) == borrowed.compute_digest(usual)
    assert np.allclose(measured(last, "body"), hooked(usual, "body"), rtol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda w: w.to_sparse(),
        lambda w: w.to_sparse_csr(),
        lambda w: w.to_sparse_bsc((2, 2)),
        lambda w: w.to_mkldnn(),
        lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.qint8),
        lambda w: torch.quantize_per_channel(w, torch.ones(4), torch.zeros(4), 0, torch.qint8),
        lambda w: torch.nested.nested_tensor([w, w[:1]], layout=torch.jagged),
        lambda w: torch.nested.nested_tensor([w, w[:1]]),
        lambda w: torch.complex(w, w).conj(),
        lambda w: w.to(torch.float8_e4m3fn),
        lambda w: {"scales": [w, (1, None)], "kind": "fp8"},
        lambda w: w.numpy(),
    ],
    ids="coo csr bsc mkldnn quantized channels jagged nested conjugate fp8 mapping numpy".split(),
)
@pytest.mark.filterwarnings("ignore")
def test_digest_depends_on_values_of_any_state(make: Callable[[torch.Tensor], Any]):
    def digest(value: float) -> str:
        return weights_digest([("state", make(torch.tensor([[1.0, 2.0], [0.0, 0.0], [4.0, 5.0], [6.0, value]])))])

    assert digest(7.0) == digest(7.0) != digest(1.0)


def test_network_with_extra_state_is_measured():
    class Extra(Block):
        calls = 0

        def get_extra_state(self) -> Any:
            return {"calls": self.calls}

        def set_extra_state(self, state: Any) -> None:
            self.calls = state["calls"]

    assert np.allclose(measured(Extra(), "body"), hooked(Block(), "body"), rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_quantized_network_is_measured():
    tools: Any = torch.ao.quantization
    model: Any = nn.Sequential(tools.QuantStub(), nn.Conv2d(3, 4, 3), tools.DeQuantStub()).eval()
    model.qconfig = tools.default_qconfig
    tools.prepare(model, inplace=True)
    model(torch.randn(1, 3, 32, 32))
    tools.convert(model, inplace=True)
    assert np.allclose(measured(model, "1"), hooked(model, "1"), rtol=1e-4)


def test_weights_without_values_are_refused():
    assert "lazy modules without weights (0.weight, 0.bias)" in refusal(nn.Sequential(nn.LazyConv2d(4, 3)), "0")
    assert "meta device (conv.weight" in refusal(Block().to("meta"), "body")


# -- input ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_input_has_the_type_of_the_layer_that_takes_it(dtype: torch.dtype):
    model = Block().to(dtype)
    model.embedding = nn.Parameter(torch.zeros(3))
    assert next(model.parameters()).dtype is torch.float32
    assert np.allclose(measured(model, "body"), hooked(model, "body", dtype), rtol=1e-2)


def test_network_that_converts_its_input_gets_float32():
    class Converting(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype is torch.float32
            return self.conv(x.half())

    model = Converting().half()
    assert np.allclose(measured(model, "conv"), hooked(model, "conv"), rtol=1e-2)


def test_layers_of_half_precision_are_listed():
    network = TargetNetwork(module=Block().half(), preprocess=GIVEN.whole("net"))
    assert survey(network).units["body"] == 4


@pytest.mark.parametrize("channels", [2, 4, 13])
def test_channels_that_images_lack_are_refused(channels: int):
    with pytest.raises(UsageError, match="images have three channels"):
        GivenPreprocess(size=32, mean=(0.5,) * channels, std=(0.5,) * channels).whole("net")


def test_preprocess_refuses_deviations_that_do_not_fit():
    for std in ((0.5,), (0.5, 0.5, 0.0), (0.5, 0.5, float("nan"))):
        with pytest.raises(UsageError, match="standard deviations"):
            Preprocess(size=(8, 8), crop=1.0, resample=Image.Resampling.BILINEAR, mean=(0.5,) * 3, std=std)


def test_function_of_the_user_may_make_other_bands():
    def bands(image: Image.Image) -> torch.Tensor:
        values = torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255
        return torch.cat([values] * 4 + [values[:1]])

    network = borrowed.with_preprocess(nn.Sequential(nn.Conv2d(13, 2, 3)), bands, GivenPreprocess())
    assert NetworkTarget("net", network, ["0"]).info().layers == {"0": 2}


def test_network_of_several_inputs_is_refused_by_its_reason():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
            return self.conv(x) + text

    assert "forward takes (x, text); give a module of yours whose forward takes images" in refusal(Two(), "conv")


def test_network_without_forward_is_refused_by_its_reason():
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Block()

    assert "has no forward; give the module inside of it that has one, out of: model" in refusal(Holder(), "model.conv")


def test_random_outputs_are_refused():
    class Random(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(self.conv(nn.functional.dropout(x)))

    assert "another output each time" in refusal(Random(), "body")


# -- wrappers and compiled networks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, AveragedModel, torch.compile, lambda m: nn.DataParallel(AveragedModel(m))]
)
def test_wrapper_changes_nothing(wrap: Callable[[nn.Module], nn.Module]):
    wrapped, plain = wrap(Block()), hooked(Block(), "body")
    name = next(name for name, _ in wrapped.named_modules() if name.endswith("body"))
    assert np.allclose(measured(wrapped, "body"), plain, rtol=1e-4)
    assert np.allclose(measured(wrapped, name), plain, rtol=1e-4)
    assert borrowed.compute_digest(wrapped) == borrowed.compute_digest(Block())


def test_compiled_parts_run_as_written():
    inside, inner, forward = Block(), Block(), Block()
    inside.compile()
    inner.body = torch.compile(inner.body)  # pyright: ignore[reportAttributeAccessIssue]
    forward.forward = torch.compile(forward.forward)
    for model in (inside, inner, forward):
        assert np.allclose(measured(model, "body"), hooked(Block(), "body"), rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["traced", "scripted", "frozen", "inside"])
def test_torchscript_is_named_as_the_reason(kind: str):
    model = Block().eval()
    program: Any = torch.jit.trace(model, torch.zeros(1, 3, 32, 32)) if kind == "traced" else torch.jit.script(model)
    program = torch.jit.freeze(program) if kind == "frozen" else program
    program = nn.Sequential(program) if kind == "inside" else program
    assert "is a part of a TorchScript module" in refusal(program, "0.body" if kind == "inside" else "body")
    assert "TorchScript program. Set target.output" in refusal(program, "output")
    classifier = nn.Sequential(program, nn.Softmax(dim=1))
    assert np.allclose(measured(classifier, "output"), measured(model, "output"), rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_digest_of_torchscript_is_that_of_its_content():
    def frozen(factor: float) -> nn.Module:
        model = Block().eval()
        model.conv.weight.data *= factor
        return torch.jit.freeze(torch.jit.trace(model, torch.zeros(1, 3, 32, 32)))

    assert (
        borrowed.compute_digest(frozen(1)) == borrowed.compute_digest(frozen(1)) != borrowed.compute_digest(frozen(2))
    )


def test_graph_and_list_name_why_a_layer_is_not_used():
    graph = torch.fx.symbolic_trace(Block())
    assert "not used in a forward pass: it lies in a graph of torch.fx" in refusal(graph, "body")
    assert np.allclose(measured(graph, "body.1"), hooked(Block(), "body.1"), rtol=1e-4)
    listed = Block()
    listed.body = nn.ModuleList([nn.Conv2d(8, 4, 3)])  # pyright: ignore[reportAttributeAccessIssue]
    listed.forward = lambda x: listed.body[0](listed.conv(x))  # pyright: ignore[reportIndexIssue]
    assert "not used in a forward pass: it is a list of modules" in refusal(listed, "body")


def test_exported_program_is_refused_by_its_reason():
    program = torch.export.export(Block().eval(), (torch.zeros(1, 3, 32, 32),))
    assert "a program of torch.export" in refusal(program.module(), "body")
    assert np.allclose(measured(torch.export.unflatten(program), "body"), hooked(Block(), "body"), rtol=1e-4)


def test_modes_of_a_torchscript_module_are_restored():
    program = torch.jit.script(Block())
    with borrowed.evaluating(program, lambda line: None):
        assert not program.training
    assert program.training
