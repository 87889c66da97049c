"""What the units of a layer raise, beside derivatives that are written out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.services import Drives
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import TargetNetwork
from tests.helpers.planted_edges import PREPROCESS, PlantedEdges, colour_fields, network

IMAGES = colour_fields(6)


@pytest.fixture(scope="module")
def batch() -> torch.Tensor:
    return PREPROCESS.batch([np.asarray(each.pil()) for each in IMAGES], torch.device("cpu"))


def derived(module: PlantedEdges, batch: torch.Tensor, centred: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of the layer, and gradients of each class's logit, (classes, images, channels, h, w)."""
    values = module.units(module.colours(batch)).detach().requires_grad_()
    logits = module.fc(torch.relu(module.mix(values)).mean((2, 3)))
    logits = logits - logits.mean(dim=1, keepdim=True) if centred else logits
    gradients = [torch.autograd.grad(each.sum(), values, retain_graph=True)[0] for each in logits.T]
    return values.detach(), torch.stack(gradients)


def check(found: Drives, expected: torch.Tensor) -> None:
    """`expected` has the shape (classes, units)."""
    order = expected.argsort(dim=0, descending=True)[:10].T
    assert found.rises == pytest.approx(expected.T.gather(1, order).numpy(), rel=1e-4, abs=1e-6)
    named = expected.T.gather(1, torch.from_numpy(found.classes)).numpy()
    assert named == pytest.approx(found.rises, rel=1e-4, abs=1e-6)
    assert found.images == len(IMAGES)


def test_units_are_weighed_by_gradients(batch: torch.Tensor):
    seen: list[tuple[int, int]] = []
    target = NetworkTarget("t", network(), ["units"], batch=4)
    found = target.attribute("units", IMAGES, lambda done, total: seen.append((done, total)))
    assert seen == [(160, 240), (240, 240)]
    values, gradients = derived(PlantedEdges(), batch)
    check(found, torch.einsum("iuhw,ciuhw->cu", values, gradients) / len(IMAGES))
    assert found.classes[:, 0].tolist() == PlantedEdges().edges.tolist()


def test_directions_are_weighed_along_themselves(tmp_path: Path, batch: torch.Tensor):
    weight, bias = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)), torch.tensor([1.0, 0.0, -1.0])
    save_file({"weight": weight, "bias": bias}, tmp_path / "d.safetensors")
    target = NetworkTarget("t", network(), ["units"], directions={"units": str(tmp_path / "d.safetensors")})
    values, gradients = derived(PlantedEdges(), batch)
    responses = torch.einsum("du,iuhw->idhw", weight, values) + bias[:, None, None]
    along = torch.einsum("du,ciuhw->cidhw", weight / weight.square().sum(1, keepdim=True), gradients)
    check(target.attribute("units/directions", IMAGES), torch.einsum("idhw,cidhw->cd", responses, along) / len(IMAGES))


@pytest.mark.parametrize("normalisation", ["none", "layer_norm"])
def test_features_are_weighed_along_their_rows_of_the_decoder(tmp_path: Path, batch: torch.Tensor, normalisation: str):
    made = torch.Generator().manual_seed(1)
    encoder, decoder = torch.randn(40, 30, generator=made), torch.randn(30, 40, generator=made)
    (tmp_path / "cfg.json").write_text(
        json.dumps({
            "architecture": "topk", "d_in": 40, "d_sae": 30, "k": 4, "normalize_activations": normalisation,
            "apply_b_dec_to_input": False,
        })
    )  # fmt: skip
    save_file(
        {"W_enc": encoder, "W_dec": decoder, "b_enc": torch.zeros(30), "b_dec": torch.zeros(40)},
        tmp_path / "sae_weights.safetensors",
    )
    target = NetworkTarget("t", network(), ["units"], dictionaries={"units": str(tmp_path)})
    values, gradients = derived(PlantedEdges(), batch)
    centred = values - values.mean(1, keepdim=True)
    scale = centred.std(1, keepdim=True) + 1e-5 if normalisation == "layer_norm" else torch.ones(1)
    given = centred / scale if normalisation == "layer_norm" else values
    before = torch.einsum("uf,iuhw->ifhw", encoder, given)
    least = before.topk(4, dim=1).values[:, -1:]
    features = torch.where(before >= least, before, 0).clamp_min(0) * scale
    along = torch.einsum("fu,ciuhw->cifhw", decoder, gradients)
    check(target.attribute("units/features", IMAGES), torch.einsum("ifhw,cifhw->cf", features, along) / len(IMAGES))


def test_independent_classes_are_not_compared(batch: torch.Tensor):
    made = TargetNetwork(module=PlantedEdges().eval(), preprocess=PREPROCESS, output=OutputMeaning.SIGMOID)
    values, gradients = derived(PlantedEdges(), batch, centred=False)
    found = NetworkTarget("t", made, ["units"]).attribute("units", IMAGES)
    check(found, torch.einsum("iuhw,ciuhw->cu", values, gradients) / len(IMAGES))


class Undivided(PlantedEdges):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return super().forward(x)


class InPlace(PlantedEdges):
    def __init__(self):
        super().__init__()
        self.after = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.mix(self.after(self.units(self.colours(x))))).mean((2, 3)))


class ThroughNumpy(PlantedEdges):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(super().forward(x).numpy().copy())


class ChangedView(PlantedEdges):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        units = self.units(self.colours(x))
        first, *_ = (mixed := torch.relu(self.mix(units))).split(5, 1)
        first += 1
        return self.fc(mixed.mean((2, 3)))


def test_network_without_gradients_is_refused_and_a_change_in_place_is_none():
    for module in (Undivided(), ThroughNumpy(), ChangedView()):
        made = TargetNetwork(module=module.eval(), preprocess=PREPROCESS)
        with pytest.raises(UsageError, match="gives no gradients with respect to units"):
            NetworkTarget("t", made, ["units"]).attribute("units", IMAGES)
    others = [
        NetworkTarget("t", TargetNetwork(module=each.eval(), preprocess=PREPROCESS), ["units"]).attribute(
            "units", IMAGES
        )
        for each in (PlantedEdges(), InPlace())
    ]
    assert others[0].rises == pytest.approx(others[1].rises)
