"""Networks of a user's own, for tests."""

import torch


class Boolean(torch.nn.Module):
    """A layer whose output cannot be a unit."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(x).float().mean(dim=(1, 2, 3))


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x > 0


def boolean() -> torch.nn.Module:
    return Boolean()
