"""The precision in which the target network computes."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import torch

from openmaia.core.errors import UsageError

Precision = Literal["float32", "tf32", "bfloat16"]
"""Of convolutions and matrix products. `tf32` keeps 10 bits of each factor, `bfloat16` 7, of 23 in float32. Weights,
normalisations and sums stay in float32."""


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raises UsageError if a device does not compute in a precision."""
    if precision == "tf32" and device.type == "cpu":
        raise UsageError(
            "target.precision=tf32: the network runs on a CPU, and only GPUs compute in TF32; give float32 or bfloat16"
        )


@contextmanager
def computing_in(precision: Precision, device: torch.device) -> Generator[None]:
    """Within it, PyTorch computes in a precision, whatever was set outside. In float32, a GPU uses no TF32 either."""
    # Set in each pass, because the settings are those of the whole process, which may hold several networks.
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
