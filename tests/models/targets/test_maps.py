"""Which axes of a layer's output are units and which are positions, for shapes and for real architectures."""

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.models.targets.forward import Forward, input_batches
from openmaia.models.targets.maps import AxisOrder, OutputLayout, ShapeEvidence, arrange, infer_layout
from openmaia.models.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from openmaia.models.targets.responses import Response

torch.set_num_threads(1)

PREPROCESS = Preprocess(
    size=(32, 32), crop=1.0, resample=Image.Resampling.BILINEAR, mean=IMAGENET_MEAN, std=IMAGENET_STD
)


def judged(
    usual: tuple[int, ...],
    taller: tuple[int, ...] | None = None,
    wider: tuple[int, ...] | None = None,
    size: tuple[int, int] = (32, 32),
    module: nn.Module | None = None,
) -> OutputLayout:
    return infer_layout(
        ShapeEvidence(layer="x", module=module or nn.Identity(), size=size, usual=usual, taller=taller, wider=wider)
    )


def read(
    module: nn.Module, layer: str, size: tuple[int, int], seed: int = 0
) -> tuple[Response, AxisOrder, torch.Tensor]:
    """What is read of a layer for one input, the kind that was found, and the input."""
    forward = Forward(module.eval(), {layer: layer}, torch.device("cpu"))
    _, layouts, _ = forward.examine(replace(PREPROCESS, size=size))
    batch = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(seed))
    return arrange(forward(batch)[layer], layouts[layer], size, layer)[0].numpy(), layouts[layer].kind, batch


# -- from how shapes grow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usual", "taller", "wider", "kind"),
    [
        ((8, 4, 4), (8, 8, 4), (8, 4, 8), AxisOrder.MAP),
        ((4, 4, 8), (8, 4, 8), (4, 8, 8), AxisOrder.MAP_LAST),
        ((8, 8, 8), (8, 16, 8), (8, 8, 16), AxisOrder.MAP),
        ((8, 8, 8), (16, 8, 8), (8, 16, 8), AxisOrder.MAP_LAST),
        ((8, 1, 1), (8, 2, 1), (8, 1, 2), AxisOrder.MAP),
        ((8, 1, 1), (8, 1, 1), (8, 1, 1), AxisOrder.VECTOR),
        ((1, 1, 8), (1, 1, 8), (1, 1, 8), AxisOrder.VECTOR),
        ((1, 8), (1, 8), (1, 8), AxisOrder.VECTOR),
        ((8, 7, 7), (8, 7, 7), (8, 7, 7), AxisOrder.MAP),
        ((17, 16), (33, 16), (33, 16), AxisOrder.TOKENS),
        ((16, 17), (16, 33), (16, 33), AxisOrder.TOKENS_LAST),
        ((8,), (8,), (8,), AxisOrder.VECTOR),
    ],
)
def test_growing_axes_are_positions(
    usual: tuple[int, ...], taller: tuple[int, ...], wider: tuple[int, ...], kind: AxisOrder
):
    assert judged(usual, taller, wider).kind is kind


@pytest.mark.parametrize(
    ("usual", "taller", "wider"),
    [
        ((2, 17, 17), (2, 33, 33), (2, 33, 33)),
        ((2, 17, 8), (2, 33, 8), (2, 33, 8)),
        ((64, 8), (64, 8), (64, 8)),
        ((4, 8), (8, 8), (4, 8)),
        ((4, 4, 8), (4, 8, 8), (8, 4, 8)),
    ],
    ids=["attention", "heads", "latents", "rows", "transposed"],
)
def test_other_growth_is_refused(usual: tuple[int, ...], taller: tuple[int, ...], wider: tuple[int, ...]):
    with pytest.raises(UsageError, match="'x' cannot be read as units at positions"):
        judged(usual, taller, wider)


@pytest.mark.parametrize("prefix", [0, 1, 3, 4, 7])
def test_leading_tokens_do_not_double(prefix: int):
    assert judged((16 + prefix, 5), (32 + prefix, 5), (32 + prefix, 5)).prefix == prefix


def test_hundred_extra_tokens_are_no_prefix():
    assert judged((116, 5), (132, 5), (132, 5)).prefix is None


# -- from the shape alone ------------------------------------------------------------------------------------------------


def test_square_axes_are_positions():
    assert judged((96, 8, 8)).kind is AxisOrder.MAP
    assert judged((8, 8, 96)).kind is AxisOrder.MAP_LAST


@pytest.mark.parametrize(("usual", "kind"), [((16, 4, 6), AxisOrder.MAP), ((4, 6, 16), AxisOrder.MAP_LAST)])
def test_axes_with_the_input_proportions_are_positions(usual: tuple[int, ...], kind: AxisOrder):
    assert judged(usual, size=(32, 48)).kind is kind


def test_module_type_decides_between_equal_axes():
    assert judged((8, 8, 8), module=nn.Conv2d(3, 8, 1)).kind is AxisOrder.MAP
    assert judged((8, 8, 8), module=nn.Linear(8, 8)).kind is AxisOrder.MAP_LAST
    assert judged((8, 8, 8), module=nn.LayerNorm(8)).kind is AxisOrder.MAP_LAST


@pytest.mark.parametrize("usual", [(8, 8, 8), (3, 5, 7), (100, 40, 40)])
def test_ambiguous_layer_is_refused(usual: tuple[int, ...]):
    with pytest.raises(UsageError, match="the shape does not tell"):
        judged(usual)


# -- real architectures --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swin() -> nn.Module:
    torch.manual_seed(0)
    return torchvision.models.SwinTransformer([4, 4], 12, [1, 1], [2, 2], [4, 4], num_classes=3).eval()


def test_swin_stage_has_channels_last(swin: nn.Module):
    found, kind, batch = read(swin, "features.1", (32, 32))
    with torch.no_grad():
        features = swin.get_submodule("features")
        expected = features.get_submodule("1")(features.get_submodule("0")(batch))[0]
    assert kind is AxisOrder.MAP_LAST
    assert found.shape == (12, 8, 8)
    assert np.allclose(found, np.moveaxis(expected.numpy(), -1, 0), atol=1e-5)


def test_swin_permutation_has_channels_first(swin: nn.Module):
    found, kind, batch = read(swin, "permute", (32, 32))
    with torch.no_grad():
        expected = swin.get_submodule("norm")(swin.get_submodule("features")(batch))[0]
    assert kind is AxisOrder.MAP
    assert np.allclose(found, np.moveaxis(expected.numpy(), -1, 0), atol=1e-5)


def test_fixed_size_swin_is_read_by_its_shape():
    torch.manual_seed(0)
    swin: nn.Module = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(1, 1), num_heads=(2, 2)
    )
    found, kind, batch = read(swin, "layers.0", (56, 56))
    with torch.no_grad():
        expected = swin.get_submodule("layers.0")(swin.get_submodule("patch_embed")(batch))[0]
    assert kind is AxisOrder.MAP_LAST
    assert found.shape == (24, 14, 14)
    assert np.allclose(found, np.moveaxis(expected.numpy(), -1, 0), atol=1e-5)


@pytest.mark.parametrize("inner", ["block.0", "block.2", "block.3", "block.5"])
def test_convnext_block_has_both_orders(inner: str):
    torch.manual_seed(0)
    setting = torchvision.models.convnext.CNBlockConfig
    # As many channels as rows and columns: no shape could tell.
    convnext = torchvision.models.ConvNeXt([setting(8, None, 2)], num_classes=3).eval()
    found, kind, batch = read(convnext, f"features.1.0.{inner}", (32, 32))
    with torch.no_grad():
        x = convnext.features[0](batch)
        steps = convnext.features.get_submodule("1.0.block")
        for step in range(int(inner[-1]) + 1):
            x = steps.get_submodule(str(step))(x)
    expected = x[0].numpy() if inner == "block.0" else np.moveaxis(x[0].numpy(), -1, 0)
    assert kind is (AxisOrder.MAP if inner == "block.0" else AxisOrder.MAP_LAST)
    assert np.allclose(found, expected, atol=1e-5)


def test_timm_convnext_has_channels_first():
    torch.manual_seed(0)
    convnext: nn.Module = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 8, 8))
    found, kind, batch = read(convnext, "stages.0.blocks.0.norm", (32, 32))
    with torch.no_grad():
        block = convnext.get_submodule("stages.0.blocks.0")
        expected = block.get_submodule("norm")(block.get_submodule("conv_dw")(convnext.get_submodule("stem")(batch)))[0]
    assert kind is AxisOrder.MAP
    assert np.allclose(found, expected.numpy(), atol=1e-5)


def test_attention_heads_are_no_map():
    torch.manual_seed(0)
    vit: nn.Module = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        embed_dim=16,
        depth=1,
        num_heads=2,
        qk_norm=True,
        dynamic_img_size=True,
    )
    with pytest.raises(UsageError, match=r"q_norm' cannot be read .* \(2, 17, 8\)"):
        read(vit, "blocks.0.attn.q_norm", (32, 32))


def test_map_before_a_fixed_classifier_is_known():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 2))
    assert read(net, "0", (32, 32))[1] is AxisOrder.MAP


# -- passes --------------------------------------------------------------------------------------------------------------


def test_module_called_twice_is_refused():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.relu = nn.Conv2d(3, 3, 1), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.relu(self.conv(self.relu(x)))

    with pytest.raises(UsageError, match="'relu' is called 2 times"):
        read(Twice(), "relu", (8, 8))


def test_equal_sizes_are_grouped_up_to_the_batch_size():
    views = [np.full((4, width, 3), n, np.uint8) for n, width in enumerate([4, 6, 4, 4, 6])]
    found = list(input_batches(PREPROCESS, views, torch.device("cpu"), 2))
    assert [indices for indices, _ in found] == [[0, 2], [3], [1, 4]]
    for indices, batch in found:
        assert torch.equal(batch, torch.stack([PREPROCESS.tensor(views[i]) for i in indices]))
