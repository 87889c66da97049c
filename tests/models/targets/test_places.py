"""Where in the image the positions of a layer are: the map follows the image, or there is none."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.core.images import EncodedImage
from openmaia.core.services import LayerProbe, Probe
from openmaia.core.units import Unit
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork
from openmaia.models.targets.survey import survey
from tests.helpers.looking import look
from tests.helpers.samples import noise

torch.set_num_threads(1)

SIDE, PATCH, GRID = 48, 4, 12
PREPROCESS = Preprocess(size=(SIDE, SIDE), crop=1, resample=Image.Resampling.BICUBIC, mean=(0.5,) * 3, std=(0.5,) * 3)
PLACES = torch.arange(GRID * GRID).view(GRID, GRID)
RASTER = PLACES.flatten()

ORDERS = {
    "columns": PLACES.T.flatten(),
    "windows": PLACES.view(3, 4, 3, 4).transpose(1, 2).flatten(),
    "halves": PLACES.view(2, 6, 2, 6).transpose(1, 2).flatten(),
    "blocks": PLACES.view(6, 2, 6, 2).transpose(1, 2).flatten(),
    "shuffled": torch.randperm(GRID * GRID, generator=torch.Generator().manual_seed(0)),
    "mirrored": PLACES.flip(1).flatten(),
    "interleaved": torch.cat([PLACES[::2], PLACES[1::2]]).flatten(),
    "shifted": PLACES.roll((3, 3), (0, 1)).flatten(),
    "snake": torch.stack([row if n % 2 == 0 else row.flip(0) for n, row in enumerate(PLACES)]).flatten(),
}


class Tokens(nn.Module):
    """A transformer layer with attention over all patches in some order, and `seen`, which shows its result."""

    def __init__(
        self,
        order: torch.Tensor = RASTER,
        before: int = 0,
        after: int = 0,
        arrange: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
        units: int = 32,
    ):
        super().__init__()
        torch.manual_seed(0)
        self.order, self.before, self.arrange = order, before, arrange
        self.patches, self.extra = nn.Conv2d(3, units, PATCH, PATCH), nn.Parameter(torch.randn(before + after, units))
        self.block, self.seen = nn.TransformerEncoderLayer(units, 4, 64, batch_first=True), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        if tokens.shape[1] != len(self.order):
            raise ValueError("one size only")
        extra = self.extra.expand(len(x), *self.extra.shape)
        joined = torch.cat([extra[:, : self.before], tokens[:, self.order], extra[:, self.before :]], dim=1)
        return self.seen(self.arrange(self.block(joined))).flatten(1)


def reader(module: nn.Module, layer: str = "seen") -> NetworkTarget:
    return NetworkTarget("net", TargetNetwork(module=module, preprocess=PREPROCESS), [layer])


def peaks(target: NetworkTarget) -> list[float] | None:
    """Distances, in cells, of the largest change of the maps from a patch that changes; None if there are no maps."""
    units = [Unit(target="net", layer=layer, index=i) for layer, n in target.info().layers.items() for i in range(n)]

    def maps(image: np.ndarray) -> list[np.ndarray | None]:
        encoded = EncodedImage.of(image)
        return [each.map for each in target.probe([Probe(unit=unit, image=encoded) for unit in units])]

    grey = np.full((SIDE, SIDE, 3), 128, np.uint8)
    plain = maps(grey)
    if plain[0] is None:
        return None
    distances: list[float] = []
    for row, column in ((1, 2), (3, 9), (6, 5), (10, 1), (8, 11)):
        changed = grey.copy()
        place = slice(row * PATCH, (row + 1) * PATCH), slice(column * PATCH, (column + 1) * PATCH)
        changed[place] = noise(row, PATCH, PATCH).pixels
        pairs = zip(maps(changed), plain, strict=True)
        change = np.sum([np.abs(new - old) for new, old in pairs if new is not None and old is not None], axis=0)
        found = np.unravel_index(change.argmax(), change.shape)
        distances.append(float(np.hypot(found[0] - row, found[1] - column)))
    return distances


@pytest.mark.parametrize(
    ("before", "after"), [(0, 0), (1, 0), (0, 1), (5, 0), (1, 4)], ids=["none", "class", "last", "registers", "both"]
)
def test_map_is_without_the_tokens_of_no_patch(before: int, after: int):
    assert peaks(reader(Tokens(before=before, after=after))) == [0.0] * 5


@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x.transpose(1, 2),
        lambda x: x.transpose(0, 1),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.unflatten(1, (GRID, GRID)),
        lambda x: x.transpose(1, 2).unflatten(2, (GRID, GRID)),
    ],
    ids=["units first", "sequence first", "units, images", "map last", "map"],
)
@pytest.mark.parametrize("units", [12, 36])
def test_axes_are_told_apart(arrange: Callable[[torch.Tensor], torch.Tensor], units: int):
    class Arranged(Tokens):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            return x.mean((2, 3))

    target = reader(Arranged(arrange=arrange, units=units))
    assert target.info().layers["seen"] == units
    assert peaks(target) == [0.0] * 5


@pytest.mark.parametrize("order", ORDERS)
def test_positions_in_another_order_have_no_map(order: str):
    target = reader(Tokens(ORDERS[order]))
    assert peaks(target) is None
    assert "seen: its positions do not follow those of the image" in target.info().understood[0]


def test_activation_without_a_map_is_the_maximum_over_all_positions():
    module = Tokens(ORDERS["shuffled"]).eval()
    target, image = reader(module), noise(1, SIDE, SIDE)
    with torch.no_grad():
        tokens = module(PREPROCESS.tensor(image.pixels)[None])[0].view(-1, 32)
    expected = tokens.amax(0).numpy()
    assert target.respond([LayerProbe(layer="seen", image=image)])[0] == pytest.approx(expected, rel=1e-3)
    assert look(target, [image.pixels])[0][1]["seen"] == pytest.approx(expected, rel=1e-3)


def test_mirrored_convolution_has_no_map():
    class Mirrored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.seen = nn.Conv2d(3, 8, 3, padding=1, stride=4), nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.seen(self.conv(x).flip(3))

    assert peaks(reader(Mirrored())) is None


@pytest.mark.parametrize("weights", [lambda w: w.zero_(), lambda w: w[1:].zero_()], ids=["all dead", "one alive"])
def test_dead_units_do_not_hide_the_map(weights: Callable[[torch.Tensor], torch.Tensor]):
    module = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU())
    with torch.no_grad():
        weights(module[0].weight)  # pyright: ignore[reportArgumentType]
        module[0].bias.zero_()  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess]
    image = noise(1, SIDE, SIDE)
    found = reader(module, "1").probe([Probe(unit=Unit(target="net", layer="1", index=0), image=image)])[0]
    assert found.map is not None


def test_windows_in_the_axis_of_the_images_are_refused():
    module = Tokens(arrange=lambda x: x.unflatten(1, (4, 36)).flatten(0, 1))
    network = TargetNetwork(module=module, preprocess=PREPROCESS)
    assert r"(4, 36, 32) for one image and (8, 36, 32) for two" in survey(network, ["seen"]).unusable["seen"]


def test_survey_counts_units_behind_the_axis_of_the_images():
    module = Tokens(arrange=lambda x: x.transpose(0, 1))
    assert survey(TargetNetwork(module=module, preprocess=PREPROCESS), ["seen"]).units["seen"] == 32
