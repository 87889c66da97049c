"""The autoencoders that the measurements train: what they learn, and that the program reads what they save."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from measure.science.autoencoder import Kind, train
from openmaia.models.targets.dictionary_format import read_dictionary
from tests.helpers.looking import dense


def planted(count: int = 4000) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions that are sums of two of twelve directions around a middle, and the directions."""
    generator = torch.Generator().manual_seed(3)
    directions = torch.randn(12, 20, generator=generator)
    directions /= directions.norm(dim=1, keepdim=True)
    parts = torch.stack([torch.randperm(12, generator=generator)[:2] for _ in range(count)])
    values = 1 + torch.rand(count, 2, 1, generator=generator)
    return 5.0 + 3 * (directions[parts] * values).sum(dim=1), directions


@pytest.mark.parametrize("kind", get_args(Kind))
def test_planted_directions_are_found(kind: Kind, tmp_path: Path):
    positions, directions = planted()
    figures = train(kind, positions, 32, 3, 600, tmp_path, "conv")
    assert figures["explained"] > 0.9
    assert 1 <= figures["active"] <= 4.5
    read = read_dictionary("conv", str(tmp_path), 20)
    assert read.description.startswith(kind)
    found = read.decoder / read.decoder.norm(dim=1, keepdim=True)
    # Of 32 random directions in 20 dimensions, the nearest has 0.5.
    assert float((directions @ found.T).max(dim=1).values.mean()) > 0.8
    features = dense(read.all(positions[:500, :, None])).squeeze(2)
    assert (features > 0).sum(dim=1).float().mean() == pytest.approx(figures["active"], rel=0.2)
