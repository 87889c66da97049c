"""Which axes of a layer's output are units and which are positions, for shapes and for real architectures."""

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn

from openmaia.errors import UsageError
from openmaia.targets.forward import Forward, equal_sizes
from openmaia.targets.maps import Evidence, Kind, Layout, Response, layout, spatial

torch.set_num_threads(1)


def judged(
    usual: tuple[int, ...],
    taller: tuple[int, ...] | None = None,
    wider: tuple[int, ...] | None = None,
    size: tuple[int, int] = (32, 32),
    module: nn.Module | None = None,
) -> Layout:
    return layout(
        Evidence(layer="x", module=module or nn.Identity(), size=size, usual=usual, taller=taller, wider=wider)
    )


def read(module: nn.Module, layer: str, size: tuple[int, int], seed: int = 0) -> tuple[Response, Kind, torch.Tensor]:
    """What is read of a layer for one input, the kind that was found, and the input."""
    forward = Forward(module.eval(), {layer: layer}, torch.device("cpu"))
    _, layouts, _ = forward.examine(size)
    batch = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(seed))
    return spatial(forward(batch)[layer][0], layouts[layer], size, layer), layouts[layer].kind, batch


# -- from how shapes grow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usual", "taller", "wider", "kind"),
    [
        ((8, 4, 4), (8, 8, 4), (8, 4, 8), Kind.MAP),
        ((4, 4, 8), (8, 4, 8), (4, 8, 8), Kind.MAP_LAST),
        ((8, 8, 8), (8, 16, 8), (8, 8, 16), Kind.MAP),
        ((8, 8, 8), (16, 8, 8), (8, 16, 8), Kind.MAP_LAST),
        ((8, 1, 1), (8, 2, 1), (8, 1, 2), Kind.MAP),
        ((8, 1, 1), (8, 1, 1), (8, 1, 1), Kind.VECTOR),
        ((1, 1, 8), (1, 1, 8), (1, 1, 8), Kind.VECTOR),
        ((1, 8), (1, 8), (1, 8), Kind.VECTOR),
        ((8, 7, 7), (8, 7, 7), (8, 7, 7), Kind.MAP),
        ((17, 16), (33, 16), (33, 16), Kind.TOKENS),
        ((16, 17), (16, 33), (16, 33), Kind.TOKENS_LAST),
        ((8,), (8,), (8,), Kind.VECTOR),
    ],
)
def test_axes_that_grow_with_the_input_are_positions(
    usual: tuple[int, ...], taller: tuple[int, ...], wider: tuple[int, ...], kind: Kind
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
def test_what_grows_otherwise_is_no_map(usual: tuple[int, ...], taller: tuple[int, ...], wider: tuple[int, ...]):
    with pytest.raises(UsageError, match="'x' cannot be read as units at positions"):
        judged(usual, taller, wider)


@pytest.mark.parametrize("prefix", [0, 1, 3, 4, 7])
def test_leading_tokens_are_those_that_do_not_double(prefix: int):
    assert judged((16 + prefix, 5), (32 + prefix, 5), (32 + prefix, 5)).prefix == prefix


def test_a_hundred_tokens_behind_the_patches_are_not_taken_for_leading_ones():
    assert judged((116, 5), (132, 5), (132, 5)).prefix is None


# -- from the shape alone ------------------------------------------------------------------------------------------------


def test_of_a_network_of_one_size_the_squares_are_positions():
    assert judged((96, 8, 8)).kind is Kind.MAP
    assert judged((8, 8, 96)).kind is Kind.MAP_LAST


@pytest.mark.parametrize(("usual", "kind"), [((16, 4, 6), Kind.MAP), ((4, 6, 16), Kind.MAP_LAST)])
def test_of_an_oblong_input_the_axes_with_its_proportions_are_positions(usual: tuple[int, ...], kind: Kind):
    assert judged(usual, size=(32, 48)).kind is kind


def test_where_all_axes_are_alike_the_kind_of_module_decides():
    assert judged((8, 8, 8), module=nn.Conv2d(3, 8, 1)).kind is Kind.MAP
    assert judged((8, 8, 8), module=nn.Linear(8, 8)).kind is Kind.MAP_LAST
    assert judged((8, 8, 8), module=nn.LayerNorm(8)).kind is Kind.MAP_LAST


@pytest.mark.parametrize("usual", [(8, 8, 8), (3, 5, 7), (100, 40, 40)])
def test_where_nothing_decides_the_layer_is_refused(usual: tuple[int, ...]):
    with pytest.raises(UsageError, match="cannot be told from the shape"):
        judged(usual)


# -- real architectures --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swin() -> nn.Module:
    torch.manual_seed(0)
    return torchvision.models.SwinTransformer([4, 4], 12, [1, 1], [2, 2], [4, 4], num_classes=3).eval()


def test_a_stage_of_torchvisions_swin_is_read_channels_last(swin: nn.Module):
    found, kind, batch = read(swin, "features.1", (32, 32))
    with torch.no_grad():
        features = swin.get_submodule("features")
        expected = features.get_submodule("1")(features.get_submodule("0")(batch))[0]
    assert kind is Kind.MAP_LAST
    assert found.shape == (12, 8, 8)
    assert np.allclose(found, np.moveaxis(expected.numpy(), -1, 0), atol=1e-5)


def test_behind_its_permutation_the_same_swin_is_read_channels_first(swin: nn.Module):
    found, kind, batch = read(swin, "permute", (32, 32))
    with torch.no_grad():
        expected = swin.get_submodule("norm")(swin.get_submodule("features")(batch))[0]
    assert kind is Kind.MAP
    assert np.allclose(found, np.moveaxis(expected.numpy(), -1, 0), atol=1e-5)


def test_a_swin_of_one_input_size_is_read_by_its_shape():
    torch.manual_seed(0)
    swin: nn.Module = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(1, 1), num_heads=(2, 2)
    )
    found, kind, batch = read(swin, "layers.0", (56, 56))
    with torch.no_grad():
        expected = swin.get_submodule("layers.0")(swin.get_submodule("patch_embed")(batch))[0]
    assert kind is Kind.MAP_LAST
    assert found.shape == (24, 14, 14)
    assert np.allclose(found, np.moveaxis(expected.numpy(), -1, 0), atol=1e-5)


@pytest.mark.parametrize("inner", ["block.0", "block.2", "block.3", "block.5"])
def test_both_orders_inside_a_convnext_block_are_told_apart(inner: str):
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
    assert kind is (Kind.MAP if inner == "block.0" else Kind.MAP_LAST)
    assert np.allclose(found, expected, atol=1e-5)


def test_timms_convnext_keeps_its_channels_first():
    torch.manual_seed(0)
    convnext: nn.Module = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 8, 8))
    found, kind, batch = read(convnext, "stages.0.blocks.0.norm", (32, 32))
    with torch.no_grad():
        block = convnext.get_submodule("stages.0.blocks.0")
        expected = block.get_submodule("norm")(block.get_submodule("conv_dw")(convnext.get_submodule("stem")(batch)))[0]
    assert kind is Kind.MAP
    assert np.allclose(found, expected.numpy(), atol=1e-5)


def test_the_heads_of_an_attention_are_not_taken_for_a_map():
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


def test_a_flattened_map_before_a_classifier_of_fixed_width_is_still_known_from_its_growth():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 2))
    assert read(net, "0", (32, 32))[1] is Kind.MAP


# -- passes --------------------------------------------------------------------------------------------------------------


def test_a_module_that_is_called_twice_is_refused_with_its_count():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.relu = nn.Conv2d(3, 3, 1), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.relu(self.conv(self.relu(x)))

    with pytest.raises(UsageError, match="'relu' is called 2 times"):
        read(Twice(), "relu", (8, 8))


def test_pictures_of_equal_size_go_together_and_never_more_than_so_many():
    sizes = [(3, 4, 4), (3, 4, 6), (3, 4, 4), (3, 4, 4), (3, 4, 6)]
    assert equal_sizes([torch.zeros(size) for size in sizes], 2) == [[0, 2], [3], [1, 4]]
