"""Fine-tuning a classifier: which layer learns, and what networks are refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.models.targets.networks import load as load_target_network
from openmaia.models.training import ClassifierTrainer, Recipe, Trainable

RECIPE = Recipe(epochs=12, rate=0.01, weight_decay=0.0, dropout=0.0, batch=8, threads=1)


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{n}.png" for n in range(16)]
    for n, path in enumerate(paths):
        Image.new("RGB", (96, 96), ("red", "blue")[n % 2]).save(path)
    return paths


def packaged(weights: str) -> Trainable:
    read = load_target_network("openmaia.offline.networks:scenes_resnet", weights)
    return read.module, lambda pixels: read.preprocess.tensor(read.preprocess.view(pixels)[0])


def test_network_with_several_heads_learns_new_classes(tmp_path: Path, images: list[Path]):
    trainer, labels = ClassifierTrainer(packaged, RECIPE), [n % 2 for n in range(16)]
    trainer.train(images, labels, 0, tmp_path / "made.safetensors", lambda done, total: None)
    features, logits = trainer.read(tmp_path / "made.safetensors", images, lambda done, total: None)
    assert features.shape == (16, 160) and logits.shape == (16, 2)
    assert logits.argmax(axis=1).tolist() == labels
    # Logits, and no log-probabilities that are joined with those of the other head.
    assert np.abs(np.exp(logits).sum(axis=1) - 1).max() > 0.1


class Tokens(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each = torch.nn.Linear(96, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.each(images).mean((1, 2))


def test_last_layer_at_many_positions_is_refused(tmp_path: Path, images: list[Path]):
    trainer = ClassifierTrainer(lambda weights: (Tokens(), packaged("")[1]), RECIPE)
    with pytest.raises(UsageError, match="not one value for each image and class"):
        trainer.train(images, [n % 2 for n in range(16)], 0, tmp_path / "made.safetensors", lambda done, total: None)
