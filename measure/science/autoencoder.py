"""Trains sparse autoencoders of a layer, and saves them as SAELens does.

TopK as in Gao et al. 2024 (arXiv 2406.04093), with their auxiliary loss on features that were not active for a while.
JumpReLU as in Rajamanoharan et al. 2024 (arXiv 2407.14435): thresholds get pseudo-gradients from a rectangular kernel, and
the loss on the number of active features is quadratic around a number that is asked for (their appendix).
"""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import nn

Kind = Literal["topk", "jumprelu"]

BATCH, RATE, THRESHOLD_RATE = 1024, 1e-3, 1e-2
"""Positions of a step, and learning rates of the weights and of the logarithms of the thresholds, which have far to go."""
SILENT, AUXILIARY = 100, 1 / 32
"""Steps without activity after which a feature counts as silent, and the weight of the auxiliary loss."""
WIDTH, SPARSITY = 0.2, 0.3
"""Of the kernel, for inputs of unit variance; and the weight of the loss on the number of active features."""


class _Step(torch.autograd.Function):
    """1 above the threshold, with a gradient for the threshold."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values, threshold)
        return (values > threshold).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        values, threshold = ctx.saved_tensors
        near = ((values - threshold).abs() < WIDTH / 2).to(values.dtype)
        return None, -(near * gradients[0] / WIDTH).sum(dim=0)


class Autoencoder(nn.Module):
    """For inputs of shape (positions, channels) and variance 1 on average."""

    def __init__(self, kind: Kind, middle: torch.Tensor, features: int, k: int):
        super().__init__()
        directions = torch.randn(features, len(middle))
        directions /= directions.norm(dim=1, keepdim=True)
        self.kind, self.k = kind, k
        self.encoder, self.decoder = nn.Parameter(directions.T.clone()), nn.Parameter(directions)
        self.bias, self.offset = nn.Parameter(torch.zeros(features)), nn.Parameter(middle.clone())
        self.log_threshold = nn.Parameter(torch.full((features,), 0.1).log())
        self.silent = torch.zeros(features)

    def before(self, positions: torch.Tensor) -> torch.Tensor:
        return (positions - self.offset) @ self.encoder + self.bias

    def features(self, before: torch.Tensor) -> torch.Tensor:
        if self.kind == "topk":
            return _largest(before, self.k)
        threshold = self.log_threshold.exp()
        return torch.relu(before) * _Step.apply(before, threshold)

    def decode(self, features: torch.Tensor) -> torch.Tensor:
        return features @ self.decoder + self.offset

    def loss(self, positions: torch.Tensor) -> torch.Tensor:
        before = self.before(positions)
        features = self.features(before)
        rest = positions - self.decode(features)
        variance = (positions - positions.mean(dim=0)).square().sum(dim=1).mean()
        loss = rest.square().sum(dim=1).mean() / variance
        self.silent = torch.where((features > 0).any(dim=0), 0, self.silent + 1)
        if self.kind == "jumprelu":
            active = torch.as_tensor(_Step.apply(before, self.log_threshold.exp())).sum(dim=1).mean()
            return loss + SPARSITY * (active / self.k - 1).square()
        is_silent = self.silent > SILENT
        if not bool(is_silent.any()):
            return loss
        # What is left over is to be explained by silent features.
        revived = _largest(before.masked_fill(~is_silent, -torch.inf), min(4 * self.k, int(is_silent.sum())))
        missed = (rest.detach() - revived @ self.decoder).square().sum(dim=1).mean()
        return loss + AUXILIARY * missed / rest.detach().square().sum(dim=1).mean()


def _largest(values: torch.Tensor, k: int) -> torch.Tensor:
    top = values.topk(k, dim=1)
    return torch.zeros_like(values).scatter(1, top.indices, torch.relu(top.values))


def train(
    kind: Kind, positions: torch.Tensor, features: int, k: int, steps: int, to: Path, layer: str
) -> dict[str, float]:
    """Trains on nine tenths of the positions, shape (positions, channels), and saves the folder.

    Returns:
        On the others: the share of variance that is explained, the mean number of active features of a position, and the
        share of features that are active at none.
    """
    torch.manual_seed(0)
    order = torch.randperm(len(positions))
    scale = (positions.shape[1] / (positions - positions.mean(dim=0)).square().sum(dim=1).mean()).sqrt()
    held, seen = (scale * positions[part] for part in (order[: len(order) // 10], order[len(order) // 10 :]))
    made = Autoencoder(kind, seen.mean(dim=0), features, k)
    others = [each for name, each in made.named_parameters() if name != "log_threshold"]
    rates = [{"params": others}, {"params": [made.log_threshold], "lr": THRESHOLD_RATE}]
    optimizer = torch.optim.Adam(rates, lr=RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        made.loss(seen[torch.randint(len(seen), (BATCH,))]).backward()
        optimizer.step()
        with torch.no_grad():
            made.decoder.div_(made.decoder.norm(dim=1, keepdim=True))
    with torch.no_grad():
        _save(made, float(scale), to, layer)
        found = made.features(made.before(held))
        missed = (held - made.decode(found)).square().sum() / (held - held.mean(dim=0)).square().sum()
        active = found > 0
        return {
            "explained": 1 - float(missed),
            "active": float(active.sum(dim=1).float().mean()),
            "silent": float((~active.any(dim=0)).float().mean()),
        }


def _save(made: Autoencoder, scale: float, to: Path, layer: str) -> None:
    # The scale of the inputs is folded into the weights: the file is for the layer's own outputs.
    tensors = {
        "W_enc": scale * made.encoder,
        "b_enc": made.bias,
        "W_dec": made.decoder / scale,
        "b_dec": made.offset / scale,
    }
    kind = {"k": made.k} if made.kind == "topk" else {}
    if made.kind == "jumprelu":
        tensors["threshold"] = made.log_threshold.exp()
    to.mkdir(parents=True, exist_ok=True)
    save_file({name: each.detach().contiguous() for name, each in tensors.items()}, to / "sae_weights.safetensors")
    config = {
        "architecture": made.kind, "d_in": len(made.offset), "d_sae": len(made.bias), "dtype": "float32", "device": "cpu",
        "apply_b_dec_to_input": True, "normalize_activations": "none", "metadata": {"hook_name": layer}, **kind,
    }  # fmt: skip
    (to / "cfg.json").write_text(json.dumps(config) + "\n")
